a=(1 2 3); echo "${a[@]}" "${#a[@]}" "${a[-1]}"; declare -A m=([k]=v); echo "${m[k]}"; echo ${a[-9]}; echo on
