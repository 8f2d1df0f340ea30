diff <(echo a) <(echo b); cat < <(echo from); echo to > >(cat); wait $!; echo <(true) | sed 's/[0-9]*$//'
