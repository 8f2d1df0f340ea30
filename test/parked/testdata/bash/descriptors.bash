for f in /proc/$$/fd/*; do n=${f##*/}; [ "$n" = 255 ] && echo 255 is open || echo "$n $(readlink $f)"; done
