#!/bin/sh
# Starts a Docker daemon of its own for Cove's tests and prints its DOCKER_HOST.
#
#   scripts/start-docker.sh [DIR]        start it (or find it running)
#   scripts/start-docker.sh --stop [DIR] stop it and unmount what it left
#
# Everything it makes is under DIR (default /tmp/cove-docker): socket, state,
# images, log; and below control groups called cove-, DIR's last name and a hash
# of its whole path. It has no bridge and writes no firewall rule, so it can run
# beside other daemons.
# It needs root and Debian's docker.io (apt-get install docker.io).
set -eu

stop=no
if [ "${1:-}" = --stop ]; then
	stop=yes
	shift
fi
dir=$(realpath --canonicalize-missing -- "${1:-/tmp/cove-docker}")
sock=$dir/docker.sock
log=$dir/dockerd.log
pidfile=$dir/dockerd.pid
group=cove-${dir##*/}-$(printf %s "$dir" | sha256sum | cut -c 1-12)

fail() {
	echo "start-docker: $*" >&2
	exit 1
}

# answers reports whether a daemon serves our socket. It asks the daemon, not
# the docker command, whose package may be missing.
answers() {
	[ -S "$sock" ] && curl --silent --fail --max-time 5 --unix-socket "$sock" http://docker/_ping >/dev/null 2>&1
}

# running reports whether the process of the pid file is our dockerd.
running() {
	[ -s "$pidfile" ] || return 1
	pid=$(cat "$pidfile")
	[ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -e "--data-root=$dir/data"
}

stop_daemon() {
	if running; then
		kill "$pid"
		i=0
		while running; do
			i=$((i + 1))
			[ "$i" -le 150 ] || kill -9 "$pid" 2>/dev/null || true
			[ "$i" -le 200 ] || fail "process $pid does not end"
			sleep 0.1
		done
	fi
	# What a killed daemon leaves mounted below its state would keep DIR busy.
	awk -v d="$dir/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r m; do
		umount -l "$m" || true
	done
	rm -f "$sock" "$pidfile"
	for g in /sys/fs/cgroup/"$group" /sys/fs/cgroup/*/"$group"; do
		if [ -d "$g" ]; then
			find "$g" -depth -type d -exec rmdir {} + || echo "start-docker: $g is still in use" >&2
		fi
	done
}

[ "$(id -u)" = 0 ] || fail "needs root"
for tool in dockerd curl awk; do
	command -v "$tool" >/dev/null || fail "needs $tool: apt-get install docker.io curl"
done

mkdir -p "$dir"
chmod 700 "$dir"
exec 9>"$dir/start.lock"
flock 9 # two test packages may ask at the same time

if [ "$stop" = yes ]; then
	stop_daemon
	exit 0
fi
if answers; then
	echo "unix://$sock"
	exit 0
fi

# A machine without an init system that mounts them has no cgroups yet, and
# containers need at least one hierarchy.
if ! grep -qE '^[^ ]+ [^ ]+ cgroup2? ' /proc/mounts; then
	mkdir -p /sys/fs/cgroup
	mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 /sys/fs/cgroup || fail "no cgroups are mounted and they cannot be"
fi

# overlay_works tries the mount that overlay2 needs, on DIR's own file system.
overlay_works() {
	o=$dir/overlay-try
	mkdir -p "$o/l" "$o/u" "$o/w" "$o/m"
	if mount -t overlay overlay -o "lowerdir=$o/l,upperdir=$o/u,workdir=$o/w" "$o/m" 2>/dev/null; then
		umount "$o/m"
		r=0
	else
		r=1
	fi
	rm -rf "$o"
	return $r
}

launch() {
	stop_daemon
	: >"$log"
	# The lock must not stay with the daemon: 9>&-.
	setsid dockerd \
		--host="unix://$sock" --group=root \
		--data-root="$dir/data" --exec-root="$dir/exec" --pidfile="$pidfile" \
		--storage-driver="$1" --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent="/$group" \
		--bridge=none --iptables=false --ip-masq=false --ip-forward=false --ip6tables=false \
		--userland-proxy=false \
		</dev/null >>"$log" 2>&1 9>&- &
	started=$!
	# Until it has written its pid file, nobody else can stop it.
	trap 'kill "$started"; exit 143' INT TERM HUP
	i=0
	while ! answers; do
		i=$((i + 1))
		if ! kill -0 "$started" 2>/dev/null || [ "$i" -gt 300 ]; then
			return 1
		fi
		sleep 0.1
	done
}

driver=vfs
overlay_works && driver=overlay2
if ! launch "$driver" && { [ "$driver" = vfs ] || ! launch vfs; }; then
	tail -n 20 "$log" >&2
	fail "dockerd did not start; its log is $log"
fi
echo "unix://$sock"
