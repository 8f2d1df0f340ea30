echo $((7 / 2)) $((1 << 4)); echo $((1/0)); echo never
