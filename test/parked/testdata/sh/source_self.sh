if [ -z "$in" ]; then in=1; echo main; . "$0"; echo back; else echo sourced "$0"; fi
