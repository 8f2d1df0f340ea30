trap 'echo term; exit 4' TERM
kill $$
sleep 5
