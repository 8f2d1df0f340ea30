x=$(printf 'y%.0s' {1..70000})
cat <<X | wc -c
$x
X
wc -c <<<"$x"
