#!/bin/bash
# Makes a root file system of Debian, with apt, that tests run sandboxes on.
# Prints its directory.
#
# It is made once and kept in a cache, under a name that changes with this
# script; a run that finds it there takes no time.
set -euo pipefail

readonly suite=bookworm

cache=${COVE_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cove-test}
out=$cache/root-$(sha256sum "$0" | cut -c1-12)

command -v mmdebstrap >/dev/null || {
	echo 'debian-root: mmdebstrap is missing; run "scripts/install.sh test" as root' >&2
	exit 1
}
mkdir -p "$cache"
exec 9>"$cache/root-lock"
flock 9
if [[ ! -e $out ]]; then
	rm -rf --one-file-system "$out.part"
	# The lists of packages are fetched by who installs some.
	mmdebstrap --quiet --variant=apt --aptopt='Acquire::Languages "none"' \
		--customize-hook='rm -rf "$1"/usr/share/doc/* "$1"/usr/share/man/* "$1"/usr/share/locale/*' \
		"$suite" "$out.part" >&2
	mv "$out.part" "$out"
fi
touch "$out"
# What older versions of this script made; other work trees may be at one.
find "$cache" -maxdepth 1 -name 'root-*' -type d -mtime +14 -exec rm -rf --one-file-system {} +
echo "$out"
