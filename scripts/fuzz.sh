#!/usr/bin/env bash
# Runs every fuzz target for a while, one after the other.
#
#   scripts/fuzz.sh [TIME]     default: 10s for each
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
export CGO_ENABLED=0
found=0
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
while read -r target package; do
	found=$((found + 1))
	echo "fuzz: $package $target"
	case $package in
	*/internal/linux/executor | */internal/linux/zygote)
		# A forked process runs on the stack that it has, which the instructions of coverage have no room on.
		go test -c -o "$made/test" "$package"
		(cd "$(go list -f '{{.Dir}}' "$package")" && "$made/test" -test.run='^$' -test.fuzz="^$target\$" \
			-test.fuzztime="$time" -test.fuzzcachedir="$made" </dev/null)
		;;
	*) go test -run='^$' -fuzz="^$target\$" -fuzztime="$time" "$package" </dev/null ;;
	esac
done < <(go test -list='^Fuzz' -json ./... |
	sed -n 's/.*"Package":"\([^"]*\)".*"Output":"\(Fuzz[A-Za-z0-9_]*\)\\n".*/\2 \1/p')
((found)) || {
	echo "fuzz: no target was found" >&2
	exit 1
}
echo "fuzz: $found targets"
