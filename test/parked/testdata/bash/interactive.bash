echo $PS1 "[$PROMPT_COMMAND]"; case $- in *i*) echo interactive;; *) echo not;; esac; history | wc -l; shopt login_shell expand_aliases; tty
