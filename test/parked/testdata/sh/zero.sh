echo "$0" "$#" "$*" "$-" "$LINENO"; set -o; set
