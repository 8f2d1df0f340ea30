cd /nowhere; echo $?; ((1/0)); declare -i x=3+; ${bad name}; echo on
[ a -eq 1 ]; echo $?; readonly r=1; r=2; echo never
