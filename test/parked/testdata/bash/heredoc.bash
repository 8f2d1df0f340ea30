cat <<'A'; cat <<-B; cat <<<"string $((1 + 1))"
plain $HOME
A
	tabs ${HOME:+set}
	B
exec 4<<E
held
E
cat <&4
