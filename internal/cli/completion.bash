# Two functions of the package bash-completion, as far as this script needs them, where that package is not installed.
if ! declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
    # Sets words, cword, cur and prev. COMP_WORDS has "=" and ":" as words of their own, which are put together again.
    _get_comp_words_by_ref()
    {
        local rest=$COMP_LINE last="" part word i over
        words=()
        for ((i = 0; i < ${#COMP_WORDS[@]}; i++)); do
            part=${COMP_WORDS[i]}
            if [[ $i -gt 0 && $rest != [[:blank:]]* && ($part == [=:]* || $last == *[=:]) ]]; then
                words[${#words[@]} - 1]+=$part
            else
                words+=("$part")
            fi
            if [[ -n $part ]]; then
                rest=${rest#"${rest%%[![:blank:]]*}"}
                rest=${rest#"$part"}
            fi
            last=$part
            if ((i == COMP_CWORD)); then
                cword=$((${#words[@]} - 1))
                word=${words[cword]}
                over=$((${#COMP_LINE} - COMP_POINT - ${#rest})) # characters of the word behind the cursor
                ((over > 0)) || over=0
                cur=${word:0:${#word} - over}
            fi
        done
        prev=""
        ((cword == 0)) || prev=${words[cword - 1]}
    }
fi
if ! declare -F _filedir >/dev/null 2>&1; then
    # Adds the directories (-d) or the files that begin with cur.
    _filedir()
    {
        local kind=-f name
        [[ $1 != -d ]] || kind=-d
        compopt -o filenames 2>/dev/null
        while IFS= read -r name; do
            COMPREPLY+=("$name")
        done < <(compgen "$kind" -- "$cur")
    }
fi

