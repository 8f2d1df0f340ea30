for p in /proc/[0-9]*; do read -r c <$p/comm && echo "${p#/proc/} $c $(cut -d' ' -f4-8 $p/stat)"; done 2>/dev/null | head -2
