echo a
x=$(echo b
echo c
