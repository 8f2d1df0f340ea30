[ -p /proc/$$/fd/10 ] && echo pipe; [ -f /proc/$$/fd/10 ] && echo file
