while read -r l; do echo "$l"; done; echo "done $?"
ssh() { cat; }; ssh; echo after
