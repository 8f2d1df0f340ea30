set -v
echo one
# a comment
echo two
