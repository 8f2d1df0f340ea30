echo "$0" "$#" "$*" "${BASH_SOURCE[@]}" "${BASH_SOURCE[0]}" "$BASH_ARGV0" "$_"
echo "${FUNCNAME[@]}" "${BASH_LINENO[@]}" "${BASH_ARGC[@]}" "${BASH_ARGV[@]}"
