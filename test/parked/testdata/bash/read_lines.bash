printf 'a\nb c\n' | while read -r x y; do echo "[$x][$y]"; done
mapfile -t m <"$0"; echo "${#m[@]} ${m[0]}"
