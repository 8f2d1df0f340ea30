echo before
cat <<X
never closed
