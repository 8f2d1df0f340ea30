x=1; [[ $x = 1 ]] && echo yes; a=(1 2); echo never
