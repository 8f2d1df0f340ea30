exec no-such-program
echo never
