sleep 100 &
echo left
