#!/bin/sh
# Installs Cove from the directory of a release: the one that this script lies in, or the one that RELEASE names, which
# may be an https address.
#
#   install.sh [--prefix DIR] [--release DIR|URL]
#
# DIR is /usr/local for root and ~/.local for others. Checksums are verified before anything is written.
set -eu

prefix=/usr/local
[ "$(id -u)" = 0 ] || prefix=$HOME/.local
release=$(dirname "$0")

fail() {
	echo "install.sh: $1" >&2
	exit 1
}

while [ $# -gt 0 ]; do
	case $1 in
	--prefix | --release)
		[ $# -gt 1 ] || fail "$1 needs a value"
		[ "$1" = --prefix ] && prefix=$2 || release=$2
		shift 2
		;;
	-h | --help)
		sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
		exit 0
		;;
	*) fail "$1 is not known; --prefix DIR and --release DIR|URL are" ;;
	esac
done

[ "$(uname -s)" = Linux ] || fail "sandboxes need Linux; this is $(uname -s)"
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no release for $(uname -m)" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# fetch copies a file of the release to the work directory.
fetch() {
	case $release in
	https://*) curl -fsSL --proto =https -o "$work/$1" "$release/$1" || fail "$release/$1 cannot be fetched" ;;
	*://*) fail "$release: an address begins with https://" ;;
	*) cp "$release/$1" "$work/$1" || fail "$release has no $1" ;;
	esac
}

fetch SHA256SUMS
archive=$(sed -n "s/^[0-9a-f]\{64\}  \(cove_.*_linux_$arch\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
[ -n "$archive" ] || fail "the release has no archive for linux/$arch"
[ "$(printf '%s\n' "$archive" | wc -l)" = 1 ] || fail "the release has more than one archive for linux/$arch"
fetch "$archive"
(cd "$work" && grep -F "  $archive" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) ||
	fail "$archive is not what SHA256SUMS says; nothing was installed"

mkdir -p "$prefix" || fail "$prefix cannot be made; choose another with --prefix"
[ -w "$prefix" ] || fail "$prefix is not writable for $(id -un); choose another with --prefix, or become root"
# Each program replaces the one before at once, so that a running server keeps the file that it was started from.
tar -xzf "$work/$archive" -C "$work"
top=$work/${archive%.tar.gz}
(cd "$top" && find . -type d) | while read -r dir; do mkdir -p "$prefix/$dir"; done
(cd "$top" && find . ! -type d) | while read -r file; do
	cp -P "$top/$file" "$prefix/$file.new$$" && mv -f "$prefix/$file.new$$" "$prefix/$file"
done
echo "installed $("$prefix/bin/cove" version) in $prefix/bin"
case :$PATH: in
*":$prefix/bin:"*) ;;
*) echo "add $prefix/bin to PATH to use it" ;;
esac
