env | sort; export -p; umask; ulimit -a
