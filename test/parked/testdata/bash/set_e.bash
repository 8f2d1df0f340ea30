set -e
trap 'echo err $LINENO $BASH_COMMAND' ERR
trap 'echo end $?' EXIT
echo on
false
echo never
