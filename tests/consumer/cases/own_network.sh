"$programs/own_network" >out.txt
cat out.txt
awk '/^step 300/ { sub("%", "", $6); exit !($6 + 0 > 95) } ' out.txt
[ "$(grep -c '^step' out.txt)" = 5 ]
# The drawing: rows of both regions.
[ "$(grep -cE '^[.#]{48}$' out.txt)" = 24 ]
[ "$(grep -c '\.#' out.txt)" -gt 12 ]
