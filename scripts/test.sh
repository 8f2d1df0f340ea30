#!/usr/bin/env bash
# Runs everything that "make test" promises: installs what is missing, builds,
# starts a Docker daemon of its own, runs every test, and ends with one line of
# counts. It reads no standard input and leaves no process behind.
#
# What tests need is made beside each other, and beside the first tests: those in
# virtual machines use one processor until the end, so they start at once.
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

# lane runs a command beside others, under a name. Its results are in
# $work/NAME.out, and what it says is kept until join shows it.
declare -A lanes
lane() {
	local name=$1
	shift
	"$@" >"$work/$name.out" 2>"$work/$name.log" &
	lanes[$name]=$!
}

# join waits for a lane, shows what it has said, and returns its exit code.
join() {
	local code=0
	wait "${lanes[$1]}" || code=$?
	[[ ! -s $work/$1.log ]] || sed "s/^/$1: /" "$work/$1.log"
	return "$code"
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

install_packages() { scripts/install.sh test >&2; }
# The programs are of version "dev", as the tests are. Tests that need the guest
# take this one instead of linking their own each.
build() { make --no-print-directory build BIN="$work/bin" VERSION=dev >&2; }
build_clients() { go build -C test/clients -ldflags '-s -w' -o "$work/bin/" . ; }
install_agents() { scripts/agents.sh "$work/bin" >&2; }
start_docker() { PATH=$PATH:/usr/sbin scripts/start-docker.sh "$docker_dir"; }
# Those of this module are vetted by "go test", which compiles them as well.
vet_others() { go vet -C test/clients ./... && go vet -C packaging/dist ./...; }

chmod 755 "$work"
lane install install_packages
lane build build
join install || echo "test: some packages could not be installed; what needs them is skipped" >&2
if [[ -n ${COVE_TEST_VM-} && ($# == 0 || $* == *vmtest* || $* == *...*) ]]; then
	lane vm-image scripts/vm-image.sh
fi
if ((EUID == 0)); then
	lane devcontainers scripts/devcontainers-cli.sh .cache/devcontainers-cli
	lane git scripts/newer-git.sh .cache/git
fi
if ((EUID == 0)) && [[ -x scripts/start-docker.sh ]] && PATH=$PATH:/usr/sbin command -v dockerd >/dev/null; then
	docker_started=yes # even when it fails half way
	lane docker start_docker
fi
join build
export COVE_TEST_BIN=$work/bin
lane clients build_clients
((EUID != 0)) || lane agents install_agents

must=()
if (($# == 0)); then
	# The go command starts packages in this order: the long ones first, so that
	# none of them is alone in the end. The suites in virtual machines take half
	# of the time and run beside all others.
	set -- ./test/vmtest ./internal/engine/native ./internal/engine/docker ./test/agents ./test/git ./test/egress \
		./test/sandboxes ./test/real ./test/soak ./...
	must=(-must-run test/mustrun.txt)
fi

# The go command starts every test binary by this program, which holds it until
# what it may use is there. The first two packages use nothing of that.
cat >"$work/gate" <<END
#!/bin/bash
case \$PWD in
*/test/vmtest | */internal/engine/native) ;;
*)
	until [[ -e "$work/ready" ]]; do sleep 0.2; done
	. "$work/ready"
	;;
esac
exec "\$@"
END
chmod 755 "$work/gate"
mkdir -p .cache
step go build -o "$work/report" ./test/report
echo "test: go test (the log is .cache/test.json)"
# Three packages at a time, as one of them waits for a daemon or an agent most of the time; not more, as tests of limits
# start many processes of their own.
"$work/report" "${must[@]}" -log .cache/test.json -- \
	go test -json -vet=all -exec "'$work/gate'" -count=1 -timeout=60m -p=3 "$@" &
tests=$!

# there tells the tests that are held of a value.
there() { printf 'export %s=%q\n' "$1" "$2" >>"$work/environment"; }
touch "$work/environment"
if [[ -v lanes[docker] ]]; then
	if join docker; then
		there DOCKER_HOST "$(<"$work/docker.out")"
	else
		echo "test: docker does not start; its tests are skipped" >&2
	fi
fi
if ((EUID == 0)); then
	if join devcontainers; then
		there COVE_TEST_DEVCONTAINERS "$(<"$work/devcontainers.out")"
	else
		echo "test: the reference command line of dev containers could not be installed; what runs it is skipped" >&2
	fi
	if join git; then
		there COVE_TEST_GIT "$PWD/.cache/git"
	else
		echo "test: there is no newer git to be had; what runs it is skipped" >&2
	fi
	if join agents; then
		there COVE_TEST_AGENTS "$PWD/.cache/agents/agents"
	else
		echo "test: the agents could not be installed; what runs them is skipped" >&2
	fi
fi
join clients
mv "$work/environment" "$work/ready"
lane vet vet_others
[[ ! -v lanes[vm-image] ]] || join vm-image || echo "test: there is no image of a virtual machine" >&2
join vet
wait "$tests"
