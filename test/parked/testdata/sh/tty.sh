tty; [ -t 1 ]; echo $?; (: </dev/tty); echo $?
