. ./nothing; echo $?; source /dev/null; echo $?
