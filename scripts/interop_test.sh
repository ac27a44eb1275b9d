#!/usr/bin/env bash
# Exports read by the programs that they are made for: compressed-tensors through Transformers, TorchAO's layout by
# torchao, GGUF by the package gguf and by llama.cpp where llama-cpp-python is installed; chats beside Transformers
# under published templates. Installs them from PyPI into an environment of its own.
# Usage: scripts/interop_test.sh [--quench PROGRAM] [--venv FOLDER] [NAME ...]
#   --quench PROGRAM   default build/quench
#   --venv FOLDER      Python environment to use or to make (default build/interop)
#   NAME               only these schemes
set -euo pipefail
cd "$(dirname "$0")/.."

quench=build/quench venv=build/interop
while [ $# -gt 0 ]; do
  case $1 in
    --quench) quench=$2; shift 2 ;;
    --venv) venv=$2; shift 2 ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "interop_test.sh: unknown argument '$1'" >&2; exit 2 ;;
    *) break ;;
  esac
done
quench=$(realpath "$quench")

if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q torch transformers compressed-tensors gguf torchao
fi

# Chat templates as packages ship them; nothing else of those is needed.
if [ ! -d "$venv/templates" ]; then
  "$venv/bin/pip" download -q --no-deps -d "$venv/wheels" trl axolotl
  "$venv/bin/python" - "$venv" <<'PYTHON'
import pathlib, sys, zipfile
venv = pathlib.Path(sys.argv[1])
for path in (venv / "wheels").glob("*.whl"):
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(venv / "templates", [name for name in wheel.namelist() if name.endswith(".jinja")])
PYTHON
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# A model that has hardly been trained, with rows that every kind of block divides.
"$quench" tokenize train --input README.md --vocab-size 512 --output "$folder/tokenizer" > /dev/null
"$quench" train shakespeare_char --run.folder="$folder/run" --data.train=README.md --data.tokenizer="$folder/tokenizer" \
  --data.validation=README.md --evaluation.interval=0 --model.vocab_size=512 --model.max_position_embeddings=512 \
  --model.hidden_size=256 --model.intermediate_size=512 --model.num_hidden_layers=2 --training.steps=20 \
  --training.dtype=f32 --data.seq_len=64 --training.micro_batch_size=4 \
  --lr_schedule.warmup_steps=2 > "$folder/train.log" 2>&1 || { cat "$folder/train.log" >&2; exit 1; }
"$quench" export --checkpoint "$folder/run" --format hf --dtype f32 --output "$folder/model" > /dev/null
status=0
"$venv/bin/python" tests/interop/check_exports.py "$quench" "$folder" "$@" || status=1
# Newer releases no longer read 2:4 sparse weights.
[ -d "$venv/sparse" ] || "$venv/bin/pip" install -q --no-deps --target "$venv/sparse" compressed-tensors==0.13.0
PYTHONPATH=$venv/sparse "$venv/bin/python" tests/interop/check_sparse.py "$quench" "$folder" || status=1
"$venv/bin/python" tests/interop/check_experts.py "$quench" "$folder" tests/golden/models/{mixtral,qwen3_moe} \
  tests/reference/models/{deepseek_v3{,_halves},llama4{,_mixed}} || status=1
if "$venv/bin/python" -c 'import llama_cpp' 2>/dev/null; then
  "$venv/bin/python" tests/interop/check_llama.py "$quench" "$folder" || status=1
fi
"$venv/bin/python" tests/reference/check_chat_templates.py "$quench" "$venv/templates" || status=1
exit $status
