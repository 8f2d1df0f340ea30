head -c 300000000 /dev/zero >/tmp/big; echo $?
