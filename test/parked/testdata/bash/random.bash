echo $(( RANDOM < 32768 )) $(( SRANDOM >= 0 )); RANDOM=4; echo $RANDOM $RANDOM
