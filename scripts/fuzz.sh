#!/usr/bin/env bash
# Runs every fuzz target for a while, one after the other.
#
#   scripts/fuzz.sh [TIME]     default: 10s for each
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
export CGO_ENABLED=0
found=0
while read -r target package; do
	found=$((found + 1))
	echo "fuzz: $package $target"
	go test -run='^$' -fuzz="^$target\$" -fuzztime="$time" "$package" </dev/null
done < <(go test -list='^Fuzz' -json ./... |
	sed -n 's/.*"Package":"\([^"]*\)".*"Output":"\(Fuzz[A-Za-z0-9_]*\)\\n".*/\2 \1/p')
((found)) || {
	echo "fuzz: no target was found" >&2
	exit 1
}
echo "fuzz: $found targets"
