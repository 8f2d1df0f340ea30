#!/usr/bin/env bash
# Judges a change while it is written: formatting, go vet, the layers and the
# quick tests. "make test" runs every test; see docs/testing.md.
#
#   scripts/check.sh [ARGUMENT OF go test…]
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

# The only list of packages that the check leaves out. It is a pattern over
# import paths below the module: an entry covers the packages below it.
# Long tests of all other packages skip themselves by testing.Short.
left_out=(
	internal/engine/docker # needs a docker daemon
	internal/engine/native # makes hundreds of sandboxes
	internal/repos         # runs git for minutes
	test/agents            # needs the agents
	test/demo              # runs the demonstration
	test/egress            # runs other programs for minutes
	test/git               # kills servers for minutes
	test/hostile           # makes sandboxes of a guest that lies
	test/parked            # runs hundreds of programs
	test/projects          # builds images of six languages
	test/real              # needs control groups of its own
	test/sandboxes         # makes sandboxes for minutes
	test/soak              # loads a server for a minute
	test/vmtest            # boots virtual machines
)

command -v go >/dev/null || {
	echo "check: Go is missing; see the version in go.mod" >&2
	exit 1
}
export CGO_ENABLED=0
# The same build flags as the builds of "make test", so that both share a cache.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath"

echo "check: gofmt"
unformatted=$(gofmt -l .)
if [[ -n $unformatted ]]; then
	printf 'check: not formatted:\n%s\n' "$unformatted" >&2
	exit 1
fi

# Vet type-checks every package, so that a test which does not compile fails
# here, in the packages that are left out below too.
echo "check: go vet"
go vet ./...

# The module of releases requires what this one does: its go.mod follows this one's.
go -C packaging/dist list -deps . >/dev/null

module=$(go list -m)
all=$(go list ./...)
pattern=
for package in "${left_out[@]}"; do
	if ! grep -q "^$module/$package\(/\|$\)" <<<"$all"; then
		echo "check: the list of what is left out names $package, which does not exist" >&2
		exit 1
	fi
	pattern+="${pattern:+|}$package"
done
mapfile -t packages < <(grep -vE "^$module/($pattern|internal/archtest)(/|$)" <<<"$all")

code=0
# Git and Go read the repository for these tests, which Go's cache of results
# does not see: they run each time.
echo "check: the layers"
go test -short -vet=off -count=1 "$@" ./internal/archtest || code=$?

echo "check: ${#packages[@]} of $(wc -l <<<"$all") packages, quick tests (make test runs everything)"
# The result of a package that has not changed comes from Go's cache. The go
# command links tests without debug information, so no flag makes that cheaper.
go test -short -vet=off -timeout=5m "$@" "${packages[@]}" | { grep --line-buffered -v 'no test files' || true; } || code=$?
echo "check: ended after $SECONDS s"
exit "$code"
