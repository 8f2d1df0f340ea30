coproc C { read -r x; echo "got $x"; }
echo hello >&"${C[1]}"; read -r y <&"${C[0]}"; echo "$y"
