# Makes a layer of a package in /layer: $1 is its name, $2 its version, $3 the
# file name of the program, $4 a pattern of files that it is one of. Scripts of
# packages run: this is a sandbox that has nothing but this directory.
set -eu
cd /layer
command -v npm >/dev/null || exit 90
umask 022
export npm_config_cache=/layer/.npm npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false \
    npm_config_loglevel=error npm_config_progress=false npm_config_fetch_retries=2 npm_config_fetch_timeout=120000
if [ -f known-lock.json ]; then
    # What was there when this version was first installed, and nothing else.
    printf '{"private": true, "dependencies": {"%s": "%s"}}\n' "$1" "$2" >package.json
    mv known-lock.json package-lock.json
    npm ci --omit=dev
else
    printf '{"private": true}\n' >package.json
    npm install --save-exact --omit=dev "$1@$2"
fi
rm -rf .npm .npmrc
program=node_modules/.bin/$3
if [ -n "$4" ]; then
    program=
    for found in $4; do
        [ -f "$found" ] && program=$found && break
    done
fi
[ -n "$program" ] && [ -x "$program" ] || exit 91
mkdir -p bin
ln -s "../$program" "bin/$3"
