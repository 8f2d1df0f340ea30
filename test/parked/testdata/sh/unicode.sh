x=größe€; echo "$x" ${#x}; printf '%s\n' 'a\tb'; echo 'a\tb'
