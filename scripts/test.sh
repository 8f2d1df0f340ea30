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

# A process group for each step, so that a step ends with all it has started.
set -m

# step runs a command. While one runs in the foreground, bash hears no signal.
step() {
	"$@" &
	wait "$!"
}

# end_step ends the step of a process id: it is asked, then told.
end_step() {
	local i
	kill -- "-$1" 2>/dev/null || return 0
	for ((i = 0; i < 100; i++)); do
		kill -0 -- "-$1" 2>/dev/null || return 0
		sleep 0.1
	done
	kill -KILL -- "-$1" 2>/dev/null || true
}

# finish stops what this script started, whatever the reason for its end.
finish() {
	local code=$? pid
	trap - EXIT INT TERM HUP
	for pid in $(jobs -pr); do end_step "$pid"; done
	[[ $docker_started == no ]] || scripts/start-docker.sh --stop "$docker_dir" || true
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
export GOFLAGS="${GOFLAGS-} -trimpath" # as releases are built, so that nothing is compiled twice

step scripts/install.sh test || echo "test: some packages could not be installed; what needs them is skipped" >&2
step make --no-print-directory build
# Tests that need the guest take this one instead of linking their own each.
# They are of version "dev", as the tests are.
chmod 755 "$work"
step go build -o "$work/bin/" ./cmd/...
step go build -C test/clients -ldflags '-s -w' -o "$work/bin/" .
export COVE_TEST_BIN=$work/bin

if ((EUID == 0)); then
	if step scripts/agents.sh "$work/bin"; then
		export COVE_TEST_AGENTS=$PWD/.cache/agents/agents
	else
		echo "test: the agents could not be installed; what runs them is skipped" >&2
	fi
	if step scripts/devcontainers-cli.sh .cache/devcontainers-cli >"$work/devcontainers-cli"; then
		COVE_TEST_DEVCONTAINERS=$(<"$work/devcontainers-cli")
		export COVE_TEST_DEVCONTAINERS
	else
		echo "test: the reference command line of dev containers could not be installed; what runs it is skipped" >&2
	fi
	if step scripts/newer-git.sh .cache/git; then
		export COVE_TEST_GIT=$PWD/.cache/git
	else
		echo "test: there is no newer git to be had; what runs it is skipped" >&2
	fi
fi

if ((EUID == 0)) && [[ -x scripts/start-docker.sh ]] && PATH=$PATH:/usr/sbin command -v dockerd >/dev/null; then
	docker_started=yes # even when it fails half way
	if PATH=$PATH:/usr/sbin step scripts/start-docker.sh "$docker_dir" >"$work/docker-host"; then
		DOCKER_HOST=$(<"$work/docker-host")
		export DOCKER_HOST
	else
		echo "test: docker does not start; its tests are skipped" >&2
	fi
fi

echo "test: go vet"
step go vet ./...
step go vet -C test/clients ./...
step go vet -C packaging/dist ./...

must=()
if (($# == 0)); then
	# The go command starts packages in this order. The suites in virtual
	# machines take half of the time, so they start first and run beside all
	# others.
	set -- ./test/vmtest ./...
	must=(-must-run test/mustrun.txt)
fi
mkdir -p .cache
echo "test: go test (the log is .cache/test.json)"
step go build -o "$work/report" ./test/report
# Three packages at a time, as one of them waits for a daemon or an agent most of the time; not more, as tests of limits
# start many processes of their own.
step "$work/report" "${must[@]}" -log .cache/test.json -- go test -json -count=1 -timeout=60m -p=3 "$@"
