#!/bin/sh
# Starts a Podman service of its own for Cove's tests and prints its address.
#
#   scripts/start-podman.sh DIR [USER]   start it (or find it running)
#   scripts/start-podman.sh --stop DIR   stop it and unmount what it left
#
# Everything that it makes is under DIR: socket, state, images, log. With USER
# it is that account's, which needs subordinate ids, and DIR/run is the
# account's XDG_RUNTIME_DIR. COVE_PODMAN_CONF is the text of another
# containers.conf.
# It needs root and Debian's podman and runc (apt-get install podman runc).
set -eu

stop=no
if [ "${1:-}" = --stop ]; then
	stop=yes
	shift
fi
[ $# -ge 1 ] || {
	echo "start-podman: needs a directory" >&2
	exit 1
}
dir=$(realpath --canonicalize-missing -- "$1")
user=${2:-root}
sock=$dir/run/podman.sock
log=$dir/podman.log
pidfile=$dir/podman.pid

fail() {
	echo "start-podman: $*" >&2
	exit 1
}

answers() {
	[ -S "$sock" ] && curl --silent --fail --max-time 5 --unix-socket "$sock" http://podman/_ping >/dev/null 2>&1
}

# running reports whether the process of the pid file is our Podman.
running() {
	[ -s "$pidfile" ] || return 1
	pid=$(cat "$pidfile")
	[ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -e "$sock"
}

stop_service() {
	if running; then
		# An account's service is a child, which does not end with its parent.
		children=$(cat "/proc/$pid/task"/*/children)
		kill "$pid"
		i=0
		while running; do
			i=$((i + 1))
			[ "$i" -le 100 ] || kill -9 "$pid" 2>/dev/null || true
			[ "$i" -le 150 ] || fail "process $pid does not end"
			sleep 0.1
		done
		for child in $children; do
			kill -9 "$child" 2>/dev/null || true
		done
	fi
	# The process that holds the namespaces of an account's Podman.
	for f in "$dir"/run/libpod/tmp/pause.pid; do
		[ ! -s "$f" ] || kill -9 "$(cat "$f")" 2>/dev/null || true
	done
	awk -v d="$dir/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r m; do
		umount -l "$m" || true
	done
	rm -f "$sock" "$pidfile"
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in podman runc curl awk; do
	command -v "$tool" >/dev/null || fail "needs $tool: apt-get install podman runc curl"
done
if [ "$stop" = yes ]; then
	stop_service
	exit 0
fi
if answers; then
	echo "unix://$sock"
	exit 0
fi
stop_service
mkdir -p "$dir/run"
# Podman asks for higher limits than root has on a machine that is itself a
# guest, and crun knows no control groups of both versions.
conf='[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
'
printf %s "${COVE_PODMAN_CONF:-$conf}" >"$dir/containers.conf"
: >"$log"
chown -R "$user" "$dir"
chmod 700 "$dir" "$dir/run"
as=
[ "$user" = root ] || as="setpriv --reuid=$user --regid=$(id -g "$user") --init-groups"
export CONTAINERS_CONF="$dir/containers.conf" XDG_RUNTIME_DIR="$dir/run" HOME="$dir"
cd "$dir"
# shellcheck disable=SC2086
setsid $as podman --root "$dir/data" --runroot "$dir/run/containers" --tmpdir "$dir/run/libpod/tmp" \
	system service --time 0 "unix://$sock" </dev/null >>"$log" 2>&1 &
started=$!
echo "$started" >"$pidfile"
i=0
while ! answers; do
	i=$((i + 1))
	if ! kill -0 "$started" 2>/dev/null || [ "$i" -gt 300 ]; then
		tail -n 20 "$log" >&2
		fail "podman did not start; its log is $log"
	fi
	sleep 0.1
done
echo "unix://$sock"
