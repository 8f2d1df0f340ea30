exec 3<"$0"; read -r line <&3; echo "$line"; read -r line <&3; echo "second: $line"
# the second line
exec >out; echo hidden; exec >&2; cat out
