trap 'echo exit $?' EXIT
trap 'echo usr1' USR1
trap 'echo debug $LINENO' DEBUG
kill -USR1 $$
trap - DEBUG
trap -p
(trap -p; echo sub $BASH_SUBSHELL)
