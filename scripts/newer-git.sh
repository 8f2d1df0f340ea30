#!/usr/bin/env bash
# Puts a newer git than this machine's into a directory, for tests: Debian 13's,
# with the libraries that it needs, from the mirror that apt is configured for.
# The machine itself keeps what it has.
#
#   scripts/newer-git.sh DIRECTORY
#
# DIRECTORY/bin/git is the program then. Once it is there, nothing is done.
set -euo pipefail
suite=trixie
to=$(realpath -m "${1:?the directory is missing}")
if [[ -x $to/bin/git ]] && "$to/bin/git" --version >/dev/null 2>&1; then
	exit 0
fi
((EUID == 0)) || { echo "newer-git: only root installs patchelf" >&2; exit 1; }
mirror=$(apt-get indextargets --format '$(SITE)|$(CODENAME)|$(ORIGIN)' | awk -F'|' '$3 == "Debian" && $2 !~ /security/ {print $1; exit}')
[[ -n $mirror ]] || { echo "newer-git: apt knows no mirror of Debian" >&2; exit 1; }
command -v patchelf >/dev/null || apt-get install -y -q patchelf >/dev/null

work=$(mktemp -d "${TMPDIR:-/tmp}/cove-git.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{sources,lists/partial,cache/archives/partial,debs,root}
cat >"$work/sources/newer.sources" <<END
Types: deb
URIs: $mirror
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
apt=(-q -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$work/sources" -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache"
	-o Dir::State::status=/dev/null -o APT::Install-Recommends=false -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update >/dev/null
packages=$(apt-get "${apt[@]}" -s install git | awk '/^Inst/ {print $2}' | grep -E '^(git|lib|zlib)' | grep -vE '^(git-man|libperl)')
(cd "$work/debs" && apt-get "${apt[@]}" download $packages >/dev/null)
for deb in "$work"/debs/*.deb; do
	dpkg -x "$deb" "$work/root"
done

# Its programs find its libraries, wherever they are started from.
rm -rf "$to"
mkdir -p "$to/bin"
mv "$work/root" "$to/root"
libraries=$to/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || echo x86_64-linux-gnu)
loader=$(echo "$libraries"/ld-linux-*.so.*)
find "$to/root/usr/bin/git" "$to/root/usr/lib/git-core" -type f | while read -r program; do
	if [[ $(head -c4 "$program" | tr -d '\0') == $'\x7fELF' ]]; then
		patchelf --set-interpreter "$loader" --set-rpath "$libraries" --force-rpath "$program"
	fi
done
cat >"$to/bin/git" <<END
#!/bin/sh
GIT_EXEC_PATH=$to/root/usr/lib/git-core GIT_TEMPLATE_DIR=$to/root/usr/share/git-core/templates exec $to/root/usr/bin/git "\$@"
END
chmod 755 "$to/bin/git"
"$to/bin/git" --version
