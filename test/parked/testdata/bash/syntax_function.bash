f() { echo 1
}
f
}
echo never
