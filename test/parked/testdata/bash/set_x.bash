set -x
f() { echo "$1"; }
f "a b"
x=3; [[ $x -gt 2 ]] && (( x++ ))
PS4='+${BASH_SOURCE}:${LINENO}: '
echo end
