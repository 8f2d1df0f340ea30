env | sort; tr '\0' '\n' </proc/$$/environ | sort; export -p; umask
