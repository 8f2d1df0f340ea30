printf 'a\r\n' | od -c; echo $'tab\tnl\nnul-free'
