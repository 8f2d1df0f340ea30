f() { f | f & }; for i in {1..70}; do sleep 100 & done 2>&1 | grep -c fork; echo end
