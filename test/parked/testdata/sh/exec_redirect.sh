exec 3<"$0"; read -r line <&3; echo "$line"
exec >out; echo hidden; exec >&2; cat out
