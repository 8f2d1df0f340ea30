x=größe€; echo ${#x} ${x^^}; printf '%q\n' "$x"; LC_ALL=C; echo ${#x}; locale 2>/dev/null | head -2
