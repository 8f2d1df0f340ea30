now=$(date +%s); echo $(( EPOCHSECONDS - now < 5 )) $(( now - $(stat -c %Y "$0") < 30 )); TIMEFORMAT=; time true
