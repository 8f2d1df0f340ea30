echo shown
echo "never closed
