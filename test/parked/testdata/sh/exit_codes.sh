(exit 3); echo $?; no-such-command; echo $?; /etc/passwd; echo $?; sh -c 'kill -9 $$'; echo $?; exit 300
