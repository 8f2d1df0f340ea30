readlink /proc/$$/fd/255 | sed 's/[0-9]//g'
[ -p /proc/$$/fd/255 ] && echo pipe; [ -f /proc/$$/fd/255 ] && echo file
