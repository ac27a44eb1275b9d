mkdir build && ln -s "$quench" build/quench
export QUENCH_SOURCE=$source_dir
source "$source_dir/tests/docs/stand_ins.sh"
stand_in_model model
stand_in_records records.jsonl
"$quench" train "$source_dir/examples/finetune_qat_lora/run.json" --model.path=model --data.train=records.jsonl --data.seq_len=64 \
  --training.steps=4 --lr_schedule.warmup_steps=1 --run.folder=tuned
cp "$source_dir/README.md" text.txt
"$programs/open_a_run" tuned text.txt int4 cpu | tee out.txt
grep -q '^a run folder with ' out.txt
grep -q '^merging the adapters of 14 layers$' out.txt
grep -q '^wrote int4, int8dyn_int4_g32, ' out.txt
grep -Eq '^perplexity [0-9.]+ in int4$' out.txt
grep -q 'tokens$' out.txt
# The same numbers as the program's.
"$quench" quantize --model tuned --format compressed-tensors --scheme "$(sed -n 's/^wrote int4, \([^,]*\),.*/\1/p' out.txt)" --output same
cmp int4/model.safetensors same/model.safetensors
# A whole model, in int4 weights.
"$programs/open_a_run" model text.txt whole cpu | tee whole.txt
grep -q '^a model folder with ' whole.txt
grep -q '^wrote whole, int4_weight_only_g32, ' whole.txt
! "$programs/open_a_run" nowhere text.txt out cpu 2>error.txt
grep -q nowhere error.txt
