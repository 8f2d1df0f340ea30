exec <"$0"
read -r a; read -r b; echo "read $a"; echo "and $b"
echo still
