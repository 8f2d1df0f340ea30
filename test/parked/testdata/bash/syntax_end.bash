echo shown first
if true; then
  echo open
