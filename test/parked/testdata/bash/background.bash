sleep 0.01 & a=$!; (exit 3) & b=$!; wait $a; echo $?; wait $b; echo $?; jobs; wait 99999; echo $?
sh -c 'exit 5' & wait -n; echo $?
