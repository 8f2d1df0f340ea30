(exit 3) & wait $!; echo $?; sleep 0.01 & wait; echo $?; jobs
