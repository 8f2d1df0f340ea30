cat <<A; cat <<'B'
${HOME:+set} $((1 + 2))
A
plain $HOME
B
