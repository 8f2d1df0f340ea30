(exit 3); echo $?; false; echo $?; no-such-command; echo $?; /etc/passwd; echo $?; sh -c 'kill -TERM $$'; echo $?
exit 300
