echo before; return 3; echo after $?
