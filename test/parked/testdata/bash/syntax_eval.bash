eval 'if'; echo $?; bash -n "$0"; echo $?
