read -r x; echo "$? [$x]"; cat; [ -t 0 ]; echo $?; readlink /proc/$$/fd/0
