declare -F; alias; trap; hash; jobs; compgen -A builtin | wc -l
f() { echo "$FUNCNAME $LINENO ${BASH_LINENO[*]} ${BASH_SOURCE[*]}"; caller; caller 0; }
g() { f; }
g
shopt -s extdebug; declare -F f g
