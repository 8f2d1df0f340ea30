set -u
echo "${HOME:+set}"
echo "$nothing"
echo never
