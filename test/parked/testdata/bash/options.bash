echo "$-" "$SHELLOPTS" "$BASHOPTS"; set -o; shopt; shopt -o | head -3; ulimit -a
