exec bash -c 'echo replaced; ls /proc/self/fd; exit 6'
echo never
