for f in /proc/$$/fd/*; do n=${f##*/}; [ "$n" -gt 2 ] && echo "$n is open" || echo "$n $(readlink $f)"; done
