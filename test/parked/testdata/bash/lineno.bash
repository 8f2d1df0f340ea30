echo $LINENO

echo $LINENO; echo \
  $LINENO
(echo $LINENO)
cat <<X
$LINENO
X
echo $LINENO
