: >"$0"
echo still here
