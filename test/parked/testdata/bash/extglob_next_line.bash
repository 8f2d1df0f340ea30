shopt -s extglob
case abc in a+(b|c)) echo matched;; esac
