# Killed and started again, a run ends with the losses of a run that was not.
cp "$source_dir/README.md" text.txt
"$programs/train_loop" text.txt whole 40 cpu | tee whole.txt
first=$(sed -n 's/^step 10  loss \([0-9.]*\).*/\1/p' whole.txt) last=$(sed -n 's/^step 40  loss \([0-9.]*\).*/\1/p' whole.txt)
awk "BEGIN { exit !($last < $first - 0.3) }"
"$programs/train_loop" text.txt killed 40 cpu >killed.txt &
run=$!
while [ ! -e killed/checkpoints/step-25 ]; do
  kill -0 $run
  sleep 0.05
done
kill -9 $run
wait $run || true
"$programs/train_loop" text.txt killed 40 cpu | tee resumed.txt
grep -q '^resumed at step 25$' resumed.txt
diff <(grep '^step [34]0' whole.txt) <(grep '^step [34]0' resumed.txt)
! "$programs/train_loop" text.txt 2>usage.txt
grep -q 'error (bad config): usage' usage.txt
! "$programs/train_loop" missing.txt other 40 cpu 2>missing-text.txt
grep -q missing.txt missing-text.txt
