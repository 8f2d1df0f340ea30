echo 'echo appended' >>"$0"
echo original
