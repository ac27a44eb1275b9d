#!/usr/bin/env bash
# Examples of plug-ins and ops, built against the prefix that consumer_test.sh has installed, and run.
# Usage: example_test.sh custom_op|custom_recipe|custom_model|custom_objective QUENCH WORK   WORK/prefix: the installed libraries
#   QUENCH_CMAKE_ARGS  further arguments for CMake of the example
set -euo pipefail
name=$1 quench=$2 work=$3
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
folder=$work/$name-run

fail() { echo "error: $*" >&2; exit 1; }

rm -rf "$folder"
cp -r "$source_dir/examples/$name" "$folder"
cd "$folder"
build() {
  # shellcheck disable=SC2086  # several arguments in one variable
  cmake -S . -B build -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" ${QUENCH_CMAKE_ARGS:-} && cmake --build build
}
build >build.log 2>&1 || { cat build.log >&2; exit 1; }
cp "$source_dir/README.md" input.txt

# train [ARGUMENT ...]: the example's config, 20 steps
train() { "$quench" "$@" --data.train=input.txt --training.steps=20 >out.txt 2>&1 || { cat out.txt >&2; exit 1; }; }

case $name in
  custom_op)
    build/custom_op | tee out.txt
    grep -q '^gradient check: passed' out.txt
    ;;
  custom_recipe)
    train --plugin build/libternary.so train run.json
    grep -q 'mlp.down_proj .* ternary$' out.txt
    ! "$quench" eval --model runs/ternary --data input.txt 2>error.txt || fail "evaluated without the plug-in"
    grep -q "plug-in 'ternary' 1.0, which is not loaded" error.txt
    "$quench" --plugin build/libternary.so eval --model runs/ternary --data input.txt
    ;;
  custom_model)
    train train run.json
    grep -q '^model: ThinLlamaForCausalLM' out.txt
    "$quench" --plugin build/libthin_llama.so export --checkpoint runs/thin_llama --format hf --output exported
    "$quench" --plugin build/libthin_llama.so generate --model exported --prompt "A plug-in"
    ! "$quench" generate --model exported --prompt "A plug-in" 2>error.txt || fail "an unknown family was loaded"
    grep -q ThinLlamaForCausalLM error.txt
    ;;
  custom_objective)
    for i in $(seq 90); do
      printf '{"prompt": "Item %d: ", "chosen": "a good answer %d", "rejected": "a bad answer %d"}\n' "$i" $((i * 7)) $((i * 5))
    done >pairs.jsonl
    reward() { "$quench" --plugin build/libreward.so "$@" --data.train=pairs.jsonl --data.validation=pairs.jsonl; }
    reward estimate run.json | tee out.txt
    grep -q '^parameters  *[1-9]' out.txt
    ! reward config check run.json --reward.centre=1 2>error.txt || fail "an unknown key of the section was taken"
    grep -q 'reward.center' error.txt
    ! reward config check run.json --lora.rank=4 2>error.txt || fail "a head under adapters was taken"
    grep -q 'remove section lora' error.txt
    ! reward config check run.json --preference.loss=dpo 2>error.txt || fail "two objectives were taken"
    grep -q 'a run has one objective' error.txt
    ! "$quench" config check run.json --data.train=pairs.jsonl 2>error.txt || fail "the section is known without the plug-in"
    grep -q reward error.txt
    reward train run.json --training.steps=30 --lr_schedule.decay_steps=60 >out.txt 2>&1 || { cat out.txt; exit 1; }
    reward train run.json --lr_schedule.decay_steps=60 --export.format=hf >out.txt 2>&1 || { cat out.txt; exit 1; }
    grep -q '^resumed from .*step-30' out.txt
    grep -q '^reward: a scalar head' out.txt
    grep -q 'best validation' out.txt
    awk -F'"rewards/accuracies":' '/"step":60,/ { split($2, value, /[,}]/); if (value[1] + 0 == 1) right = 1 } END { exit !right }' \
      runs/reward/metrics/evaluations.jsonl || { cat runs/reward/metrics/evaluations.jsonl; fail "the pairs were not learned"; }
    grep -aq '"score.weight"' runs/reward/export/model.safetensors
    grep -q 'reward model (Bradley-Terry)' runs/reward/export/README.md
    "$quench" eval --model runs/reward/export --data input.txt --format text
    ;;
  *) sed -n '3,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
