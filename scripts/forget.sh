#!/bin/sh
# Asks at a terminal whether what Cove keeps on this machine is removed: sandboxes with the work in them, images and
# records. Elsewhere, or with the directory of a package to be, it says where they are.
#
#   scripts/forget.sh DESTDIR
set -eu

state=/var/lib/cove
[ "$(id -u)" = 0 ] || state=${XDG_DATA_HOME:-$HOME/.local/share}/cove
[ -z "$1" ] && [ -d "$state" ] || {
	echo "what Cove keeps stays: \"rm -r /var/lib/cove\", or ~/.local/share/cove, removes it"
	exit 0
}
if [ -t 0 ]; then
	printf 'remove the sandboxes and the work in them, images and records, in %s? [y/N] ' "$state"
	read -r answer || answer=
	case $answer in
	y | Y | yes)
		rm -rf --one-file-system "$state"
		exit 0
		;;
	esac
fi
echo "what Cove keeps stays in $state: \"rm -r $state\" removes it"
