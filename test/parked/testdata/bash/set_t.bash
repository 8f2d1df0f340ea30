set -t
echo one more
echo never
