#!/usr/bin/env bash
# From raw text to a trained model on the CPU: trains a tokenizer, makes token shards, pre-trains a small Llama in float8
# in two processes that hold half of it each, interrupts it half-way and resumes, fine-tunes it for weights of two bits,
# evaluates bf16, two bits and two bits after the fine-tuning side by side, generates from the last, writes a report.
# (So small a model loses next to nothing to four bits.)
# About ten minutes on two cores with AVX-512 after the build, longer with AVX2 alone. On a GPU one process trains.
# After Ctrl-C the same command goes on where it stopped.
# Usage: scripts/demo.sh [--data FILE] [--steps N] [--output FOLDER]
#   --data FILE      text to learn (default: the fortunes that Debian packages)
#   --steps N        optimizer steps, 8 or more (default 400)
#   --output FOLDER  where everything goes (default runs/demo; a finished or different demo there is replaced)
set -euo pipefail
start_folder=$PWD
cd "$(dirname "$0")/.."

data= steps=400 output=runs/demo
while [ $# -gt 0 ]; do
  case $1 in
    --data | --steps | --output) [ $# -ge 2 ] || { echo "demo.sh: $1 needs a value" >&2; exit 2; } ;;&
    --data) data=$(realpath -m --relative-base=/ "$start_folder/$2"); [ "${2:0:1}" = / ] && data=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --output) output=$2; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' scripts/demo.sh; exit 0 ;;
    *) echo "demo.sh: unknown argument '$1'" >&2; exit 2 ;;
  esac
done
[[ $steps =~ ^[0-9]+$ ]] && [ "$steps" -ge 8 ] || { echo "demo.sh: --steps '$steps': expected 8 or more" >&2; exit 2; }
[ -z "$data" ] || [ -f "$data" ] || { echo "demo.sh: $data does not exist" >&2; exit 2; }

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
[ -t 1 ] || say() { printf '\n== %s\n' "$*"; }

say "1/8  build"
./scripts/setup.sh demo
quench=$PWD/build/quench
# The sequences of a step are the same, whoever computes them.
start=("$quench" run --standalone --nproc-per-node 2 train demo --training.micro_batch_size=8)
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; then
  ./scripts/build.sh
  start=("$quench" train demo)
else
  ./scripts/build.sh --cpu
fi

# .demo holds the settings, then the parts that are done.
settings="--data=$data --steps=$steps"
if [ -e "$output" ]; then
  [ -e "$output/.demo" ] || { echo "demo.sh: $output exists and is no earlier demo; choose another --output" >&2; exit 2; }
  if [ "$(head -n 1 "$output/.demo")" = "$settings" ] && ! grep -qx finished "$output/.demo"; then
    say "goes on in $output"
  else
    rm -rf "$output"
  fi
fi
mkdir -p "$output"
cd "$output"
[ -e .demo ] || echo "$settings" >.demo
is_done() { grep -qx "$1" .demo; }
mark_done() { echo "$1" >>.demo; }
trainer=
# shellcheck disable=SC2317  # called by the trap
stop() {
  [ -z "$trainer" ] || { kill -TERM "$trainer" 2>/dev/null && wait "$trainer"; } || true
  echo "demo.sh: stopped; the same command goes on" >&2
  exit 130
}
trap stop INT TERM

say "2/8  text"
if is_done text; then
  echo "done before"
elif [ -n "$data" ]; then
  # Without marked documents, paragraphs are documents.
  if grep -q '<|endoftext|>' "$data"; then cp "$data" corpus.txt; else sed 's/^$/<|endoftext|>/' "$data" >corpus.txt; fi
else
  # Fortune files hold short texts divided by lines of one per cent sign.
  for file in /usr/share/games/fortunes/*; do
    case $file in *.dat | *.u8) continue ;; esac
    [ -f "$file" ] && iconv -f utf-8 -t utf-8 -c "$file" | tr -d '\000\r' | sed 's/^%%*$/<|endoftext|>/'
    echo '<|endoftext|>'
  done > corpus.txt
fi
# The last three per cent are kept from tokenizer and training.
lines=$(wc -l < corpus.txt)
head -n $((lines * 97 / 100)) corpus.txt > train.txt
tail -n +$((lines * 97 / 100 + 1)) corpus.txt > unseen.txt
wc -c corpus.txt | awk '{printf "%.1f MB of text\n", $1 / 1e6}'

is_done text || mark_done text

say "3/8  tokenizer: byte-level BPE with 2,048 tokens"
if is_done tokens; then
  echo "done before"
else
  rm -rf tokenizer shards
  "$quench" tokenize train --input train.txt --split marker --vocab-size 2048 --output tokenizer
  "$quench" tokenize --tokenizer tokenizer --input train.txt --split marker --output shards --validation 0.05 \
    --validation-split hash
  mark_done tokens
fi

say "4/8  pre-training, interrupted half-way"
train=("${start[@]}" --run.folder=. --training.steps="$steps" --lr_schedule.warmup_steps=$((steps / 10))
  --checkpoint.interval=$((steps / 4)) --evaluation.interval=$((steps / 4)) --metrics.log_every=$(((steps + 19) / 20)))
if is_done interrupted; then
  echo "done before"
else
  "${train[@]}" &
  trainer=$!
  # A preemption: SIGTERM as soon as half of the steps are done; the trainer finishes its step, saves and exits 143.
  half=$((steps / 2))
  while kill -0 $trainer 2>/dev/null; do
    if [ -f metrics/metrics.jsonl ] && tail -n 1 metrics/metrics.jsonl |
      sed -n 's/.*"step": *\([0-9]*\).*/\1/p' | awk -v half=$half '$1 >= half {found = 1} END {exit !found}'; then
      kill -TERM $trainer
      break
    fi
    sleep 0.2
  done
  status=0
  wait $trainer || status=$?
  trainer=
  [ $status -eq 143 ] || [ $status -eq 0 ] || { echo "demo.sh: training failed with status $status" >&2; exit 1; }
  mark_done interrupted
fi

say "5/8  the same command again: resumes from the saved step"
if ! is_done trained; then
  "${train[@]}"
  mark_done trained
fi

say "6/8  fine-tuning for weights of two bits"
if ! is_done quantized; then
  "$quench" train demo_qat --run.folder=qat --training.steps=$((steps / 8 + 1)) --lr_schedule.warmup_steps=$((steps / 80)) \
    --metrics.log_every=$((steps / 40 + 1)) --export.folder=int2-qat
  "$quench" quantize --model export --scheme int2_weight_only_g32 --output int2-ptq >/dev/null
  mark_done quantized
fi

say "7/8  text it has not seen: in bf16, in two bits without and with the fine-tuning, which is further training too"
"$quench" inspect checkpoints
"$quench" eval --baseline export --ptq int2-ptq --model int2-qat --data unseen.txt --split marker |
  tee comparison.txt
echo
"$quench" generate --model int2-qat --prompt "The secret of" --temperature 0.8 --top-k 50 --max-new-tokens 80 --seed 1 |
  tee two-bit-text.txt

say "8/8  report"
"$quench" report . --output report.html --attach comparison.txt two-bit-text.txt
mark_done finished
echo "run folder:   $PWD"
echo "model folder: $PWD/export   (loads in Transformers: AutoModelForCausalLM.from_pretrained)"
echo "2-bit model:  $PWD/int2-qat   (compressed-tensors: Transformers; quench generate --interactive)"
echo "report:       $PWD/report.html"
