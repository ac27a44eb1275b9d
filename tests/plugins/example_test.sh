#!/usr/bin/env bash
# Examples of plug-ins and ops, built against the prefix that consumer_test.sh has installed, and run.
# Usage: example_test.sh custom_op|custom_recipe|custom_model QUENCH WORK   WORK/prefix: the installed libraries
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
  *) sed -n '3,4s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
