"$programs/mlp" >out.txt
cat out.txt
awk '/^step 500/ { sub("%", "", $6); exit !($6 > 95) } ' out.txt
[ "$(grep -c '^step' out.txt)" = 5 ]
