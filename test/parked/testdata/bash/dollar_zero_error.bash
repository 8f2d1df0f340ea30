echo "${undefined:?must be set}"
echo never
