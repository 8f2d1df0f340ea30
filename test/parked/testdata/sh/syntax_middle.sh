echo shown
echo )
echo never
