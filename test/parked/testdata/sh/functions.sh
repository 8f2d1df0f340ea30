f() { local x=2; echo $x $#; return 4; }; f a b; echo $?; unset -f f; f; echo $?; type cd echo
