#!/usr/bin/env bash
# Installs what Cove's tests, demo and benchmark use and the machine lacks,
# from Debian's own packages.
#
#   scripts/install.sh demo|test|bench
#
# As root it installs; otherwise it says what is missing and goes on: what
# cannot run then is skipped, with its reason.
set -euo pipefail

# wanted prints "program package" for each thing that a purpose needs, or
# "/path package" for what is no program.
wanted() {
	cat <<-'LIST'
		python3 python3-minimal
		node nodejs
		bash bash
		newuidmap uidmap
	LIST
	[[ $1 == demo ]] || cat <<-'LIST'
		ruby ruby
		perl perl
		curl curl
		wget wget
		openssl openssl
		dockerd docker.io
		runc runc
		bwrap bubblewrap
	LIST
	[[ $1 == test ]] && cat <<-'LIST'
		qemu-system-x86_64 qemu-system-x86
		mmdebstrap mmdebstrap
		docker-registry docker-registry
		mke2fs e2fsprogs
		openssl openssl
		git git
		gh gh
		zstd zstd
		npm npm
		tinyproxy tinyproxy-bin
		pip3 python3-pip
		/usr/lib/python3/dist-packages/requests python3-requests
		systemd-analyze systemd
		sudo sudo
		man man-db
		podman podman
		strace strace
		gdb gdb
		sshd openssh-server
		ssh openssh-client
	LIST
	[[ $1 == test ]] && tests_of_python
	[[ $1 == bench ]] && cat <<-'LIST'
		mitmdump mitmproxy
		taskset util-linux
		crun crun
		podman podman
	LIST
	return 0
}

# tests_of_python is the package of CPython's own tests, which is named after
# the version: of the one that is installed, or that will be.
tests_of_python() {
	local version
	version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo 3.11)
	echo "/usr/lib/python$version/test/test_os.py libpython$version-testsuite"
}

# Where sandboxes look for programs: what is in a home directory is not inside.
system_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

purpose=${1:-test}
missing=()
while read -r program package; do
	[[ $program == /* && -e $program ]] || PATH=$system_path command -v "$program" >/dev/null || missing+=("$package")
done < <(wanted "$purpose")
((${#missing[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
	echo "install: this is no Debian; missing: ${missing[*]}" >&2
	exit 0
fi
if ((EUID != 0)); then
	echo "install: not root, so nothing is installed; missing: apt-get install ${missing[*]}" >&2
	exit 0
fi
echo "install: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
attempt() {
	apt-get update -q </dev/null >/dev/null &&
		apt-get install -y -q --no-install-recommends "${missing[@]}" </dev/null >/dev/null
}
attempt || { sleep 5; attempt; }
