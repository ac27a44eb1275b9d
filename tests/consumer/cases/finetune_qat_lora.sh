mkdir build && ln -s "$quench" build/quench
export QUENCH_SOURCE=$source_dir
source "$source_dir/tests/docs/stand_ins.sh"
stand_in_model model
stand_in_records records.jsonl
cp "$source_dir/examples/finetune_qat_lora/run.json" .
"$programs/finetune_qat_lora" run.json --model.path=model --data.train=records.jsonl --data.seq_len=64 --training.steps=4 --lr_schedule.warmup_steps=1 | tee out.txt
grep -q 'qat_int8dyn_int4' out.txt
grep -q '^8 packed layers, generated 8 tokens$' out.txt
! "$programs/finetune_qat_lora" run.json --recipe.name=qat_int4 2>error.txt
grep -q 'qat_int4' error.txt
