stat -c '%A %u %g %s %F %h' "$0"; ls -la --time-style=+; ls -A ~ /tmp; test -x "$0"; echo $?
