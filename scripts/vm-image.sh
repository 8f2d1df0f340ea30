#!/bin/bash
# Makes what a test VM boots: Debian's cloud kernel, the modules it needs to
# find its disk, and a root file system with the runtimes that Cove runs, an
# emulator of arm64 that is not registered, and a shell of that architecture.
# Prints the directory that holds them: vmlinuz, modules/NN-*.ko, root.ext4.
#
# It is made once and kept in a cache, under a name that changes with this
# script; a run that finds it there takes no time. Nothing of the machine's own
# boot is touched: packages are unpacked into a tree of their own.
set -euo pipefail

readonly suite=bookworm
readonly packages=python3,nodejs,perl,ruby,uidmap,mount,kmod,procps,iproute2,git,e2fsprogs
# What the kernel needs before it has a root file system. ext4 is built in.
readonly boot_modules=(virtio_pci virtio_blk virtio_console)

cache=${COVE_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cove-test}
key=$(sha256sum "$0" | cut -c1-12)
out=$cache/vm-$key

# customize runs in the tree that mmdebstrap is making ($1), with its package
# lists still there.
customize() {
	local root=$1 kernel release i=0 module path
	export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG

	# The kernel is unpacked, not installed: its scripts would make an initramfs
	# that nobody boots.
	kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '$1 == "Depends:" && /linux-image-/ {print $2; exit}')
	mkdir "$root/kernel"
	(cd "$root/kernel" && apt-get download -q "$kernel" >&2)
	dpkg-deb -x "$root"/kernel/*.deb "$root/kernel"
	release=${kernel#linux-image-}
	mkdir -p "$root/usr/lib/modules" "$root/boot/modules"
	mv "$root/kernel/lib/modules/$release" "$root/usr/lib/modules/"
	mv "$root/kernel/boot/vmlinuz-$release" "$root/boot/vmlinuz"
	rm -r "$root/kernel"

	# Of all emulators one, and what registers it. Of arm64 a shell with its tools.
	mkdir "$root/foreign"
	(cd "$root/foreign" && apt-get download -q qemu-user-static busybox-static:arm64 >&2)
	dpkg-deb --fsys-tarfile "$root"/foreign/qemu-user-static_*.deb |
		tar -x -C "$root" ./usr/bin/qemu-aarch64-static ./usr/libexec/qemu-binfmt/aarch64-binfmt-P \
			./usr/lib/binfmt.d/qemu-aarch64.conf
	install -d "$root/usr/lib/arm64"
	dpkg-deb --fsys-tarfile "$root"/foreign/busybox-static_*.deb | tar -xO ./bin/busybox >"$root/usr/lib/arm64/busybox"
	chmod 755 "$root/usr/lib/arm64/busybox"
	rm -r "$root/foreign"
	chroot "$root" depmod "$release"
	for module in "${boot_modules[@]}"; do
		while read -r _ path; do
			compgen -G "$root/boot/modules/*-${path##*/}" >/dev/null && continue
			cp "$root$path" "$root/boot/modules/$(printf %02d "$i")-${path##*/}"
			i=$((i + 1))
		done < <(chroot "$root" modprobe --set-version "$release" --show-depends "$module" | grep ^insmod)
	done

	local id=1000 name
	for name in user norange partial; do
		# Their group has another number, so that nobody takes one for the other.
		echo "$name:x:$id:$((id + 100))::/home/$name:/bin/bash" >>"$root/etc/passwd"
		echo "$name:x:$((id + 100)):" >>"$root/etc/group"
		install -d -m 700 -o $id -g $((id + 100)) "$root/home/$name"
		id=$((id + 1))
	done
	# Only user owns a range of subordinate ids.
	echo user:100000:65536 >"$root/etc/subuid"
	echo user:200000:65536 >"$root/etc/subgid"
	echo cove-vm >"$root/etc/hostname"
	mkdir "$root/cove"
	rm -rf "$root"/usr/share/{doc,man,locale}/*
}

build() {
	local work
	work=$(mktemp -d "$cache/building.XXXXXX")
	trap "rm -rf '$work'" EXIT
	mmdebstrap --quiet --variant=essential --include="$packages" --architectures=amd64,arm64 \
		--customize-hook="bash '$(realpath "$0")' customize \"\$1\"" \
		"$suite" "$work/root.tar" >&2

	mkdir "$work/image"
	# In a user namespace when not root, so that owners and setuid bits survive.
	local as_root=(unshare --map-root-user --map-auto)
	((EUID == 0)) && as_root=()
	"${as_root[@]}" bash -euc '
		cd "$1" && mkdir root && tar -xf root.tar -C root && rm root.tar
		cp root/boot/vmlinuz image/ && cp -r root/boot/modules image/
		rm -r root/boot/*
		# Room to write; sparse, and no journal, because nothing has to survive.
		mke2fs -q -t ext4 -O ^has_journal -L root -d root image/root.ext4 4G >&2
		rm -r root' - "$work"
	chmod -R a+rX "$work/image"
	mv "$work/image" "$out"
}

case ${1:-} in
customize)
	customize "$2"
	exit
	;;
esac

PATH=$PATH:/usr/sbin:/sbin # root's own are not in everybody's
for program in qemu-system-x86_64 mmdebstrap mke2fs; do
	command -v "$program" >/dev/null || {
		echo "vm-image: $program is missing; run \"scripts/install.sh test\" as root" >&2
		exit 1
	}
done
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[[ -e $out/root.ext4 ]] || build
touch "$out"
# What older versions of this script made; other work trees may be at one.
find "$cache" -maxdepth 1 -name 'vm-*' -mtime +14 -exec rm -rf {} +
echo "$out"
