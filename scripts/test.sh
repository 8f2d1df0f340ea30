#!/usr/bin/env bash
# Runs everything that "make test" promises: installs what is missing, builds,
# starts a Docker daemon of its own, runs every test, and ends with one line of
# counts. It reads no standard input and leaves no process behind.
#
#   scripts/test.sh [ARGUMENT OF go test…]     default: ./...
set -euo pipefail
cd "$(dirname "$0")/.."
exec </dev/null

began=$SECONDS
work=$(mktemp -d "${TMPDIR:-/tmp}/cove-test.XXXXXX")
docker_dir=$work/docker
docker_started=no

# finish stops what this script started, whatever the reason for its end.
finish() {
	local code=$?
	trap - EXIT INT TERM HUP
	[[ $docker_started == no ]] || scripts/start-docker.sh --stop "$docker_dir" || true
	# What tests started is in this process's session or carries its mark.
	local pid
	for pid in $(jobs -p); do kill "$pid" 2>/dev/null || true; done
	rm -rf --one-file-system "$work" || true
	echo "test: ended after $((SECONDS - began)) s"
	exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Suites that depend on the kernel and on rights run a second time in a VM.
# Without root that needs its packages installed; see docs/testing.md.
if ((EUID == 0)) || { command -v qemu-system-x86_64 && command -v mmdebstrap; } >/dev/null; then
	export COVE_TEST_VM=${COVE_TEST_VM-1}
fi

command -v go >/dev/null || {
	echo "test: Go is missing; see the version in go.mod" >&2
	exit 1
}
export CGO_ENABLED=0

scripts/install.sh test || echo "test: some packages could not be installed; what needs them is skipped" >&2
make --no-print-directory build
# Tests that need the guest take this one instead of linking their own each.
# They are of version "dev", as the tests are.
chmod 755 "$work"
go build -trimpath -o "$work/bin/" ./cmd/...
export COVE_TEST_BIN=$work/bin

if ((EUID == 0)) && [[ -x scripts/start-docker.sh ]] && PATH=$PATH:/usr/sbin command -v dockerd >/dev/null; then
	docker_started=yes # even when it fails half way
	if host=$(PATH=$PATH:/usr/sbin scripts/start-docker.sh "$docker_dir"); then
		export DOCKER_HOST=$host
	else
		echo "test: docker does not start; its tests are skipped" >&2
	fi
fi

echo "test: go vet"
go vet ./...

must=()
if (($# == 0)); then
	set -- ./...
	must=(-must-run test/mustrun.txt)
fi
mkdir -p .cache
echo "test: go test (the log is .cache/test.json)"
go build -o "$work/report" ./test/report
# Two packages at a time: tests of limits start many processes of their own.
"$work/report" "${must[@]}" -log .cache/test.json -- go test -json -count=1 -timeout=40m -p=2 "$@"
