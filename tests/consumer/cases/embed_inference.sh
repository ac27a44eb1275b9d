mkdir build && ln -s "$quench" build/quench
export QUENCH_SOURCE=$source_dir
source "$source_dir/tests/docs/stand_ins.sh"
stand_in_model model
"$quench" quantize --model model --scheme int8_weight_only --output int8
for folder in model int8; do
  "$programs/embed_inference" $folder "The run" 12 cpu | tee $folder.txt
  grep -q '^The run' $folder.txt
  grep -Eq '^[0-9]+ tokens, [0-9.]+ tokens/s$' $folder.txt
done
! "$programs/embed_inference" nowhere "The run" 2>error.txt
grep -q nowhere error.txt
