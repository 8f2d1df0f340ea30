if [ -z "$inside" ]; then inside=1; echo main; . "$0"; echo back $?; else echo sourced "${BASH_SOURCE[@]}"; return 2; fi
