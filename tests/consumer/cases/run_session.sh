# Losses of a loop of one's own equal those of the program, for a run with adapters and a recipe.
export QUENCH_SOURCE=$source_dir
source "$source_dir/tests/docs/stand_ins.sh"
mkdir build && ln -s "$quench" build/quench
stand_in_model model
stand_in_records records.jsonl
run=("$source_dir/examples/finetune_qat_lora/run.json")
keys=(--model.path=model --data.train=records.jsonl --data.seq_len=64 --training.steps=4 --lr_schedule.warmup_steps=1)
"$quench" train "${run[@]}" "${keys[@]}" --run.folder=tuned
"$programs/run_session" "${run[@]}" mine cpu "${keys[@]}" | tee out.txt
grep -c '^step ' out.txt | grep -qx 4
losses() { sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' | xargs printf '%.6f\n'; }
diff <(losses <tuned/metrics/metrics.jsonl) <(sed -n 's/^step .*loss \([0-9.]*\) .*/\1/p' out.txt)
"$quench" generate --model mine --prompt "The" --max-new-tokens 4
"$programs/run_session" no_such_run mine cpu 2>error.txt && exit 1
grep -q no_such_run error.txt
