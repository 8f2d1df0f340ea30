#!/usr/bin/env bash
# Installs the reference command line of dev containers, from npm's registry, for
# the tests that run it: once, and never again while the pinned version is there.
#
#   scripts/devcontainers-cli.sh DIRECTORY     prints the program's path
set -euo pipefail
version=0.89.0
dir=$1
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
program=$dir/node_modules/.bin/devcontainer
if [[ ! -x $program || $("$program" --version) != "$version" ]]; then
	npm install --silent --no-audit --no-fund --prefix "$dir" "@devcontainers/cli@$version" >&2
fi
echo "$program"
