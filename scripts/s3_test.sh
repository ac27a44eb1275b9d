#!/usr/bin/env bash
# Remote checkpoints on real S3-compatible storage that checks signatures: uploads in parts, runs that are killed again
# and again and lose their folder, one process and two, whose losses must be those of an undisturbed run.
# Usage: scripts/s3_test.sh [--quench PROGRAM] [--folder FOLDER] [--with SERVER ...] [--kills COUNT]
#   --quench PROGRAM   default build/quench
#   --folder FOLDER    the servers (default build/s3)
#   --with SERVER      moto (default; from PyPI), ceph (the object gateway, from Debian's packages, 66 MB), or given: the
#                      storage of the AWS_* variables, at s3://$QUENCH_S3_BUCKET/quench-test
#   --kills COUNT      of each run (default 4)
set -euo pipefail
cd "$(dirname "$0")/.."

quench=build/quench folder=build/s3 servers=() kills=4
while [ $# -gt 0 ]; do
  case $1 in
    --quench) quench=$2; shift 2 ;;
    --folder) folder=$2; shift 2 ;;
    --with)
      case $2 in moto | ceph | given) servers+=("$2") ;; *) echo "s3_test.sh: unknown server '$2'" >&2; exit 2 ;; esac
      shift 2 ;;
    --kills) kills=$2; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' scripts/s3_test.sh; exit 0 ;;
    *) echo "s3_test.sh: unknown argument '$1'" >&2; exit 2 ;;
  esac
done
[ ${#servers[@]} -gt 0 ] || servers=(moto)
quench=$(realpath "$quench") && mkdir -p "$folder" && folder=$(realpath "$folder")
work=$(mktemp -d)
processes=()
end() {
  local id
  for id in "${processes[@]}" $(cat "$folder"/ceph/run/*.pid 2>/dev/null); do kill -9 "$id" 2>/dev/null || true; done
  rm -f "$folder"/ceph/run/*.pid
  rm -rf "$work"
}
trap end EXIT
export OMP_NUM_THREADS=1
say() { printf '== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

serve_moto() {
  if [ ! -x "$folder/moto/bin/python" ]; then
    python3 -m venv "$folder/moto"
    "$folder/moto/bin/pip" install -q 'moto[server]'
  fi
  "$folder/moto/bin/python" tests/s3/moto_server.py 5511 "$work/moto.sh" > "$work/moto.log" 2>&1 &
  processes+=($!)
  for _ in $(seq 300); do [ -e "$work/moto.sh" ] && break; sleep 0.1; done
  [ -e "$work/moto.sh" ] || { tail "$work/moto.log" >&2; fail "moto does not start"; }
  # shellcheck disable=SC1091
  . "$work/moto.sh"
}
serve_ceph() {
  tests/s3/ceph_server.sh "$folder/ceph" 5521 "$work/ceph.sh"
  # shellcheck disable=SC1091
  . "$work/ceph.sh"
}
serve_given() { models=${QUENCH_S3_BUCKET:?the bucket for --with given}/quench-test; }

config() {  # NAME, members of model, of training, of checkpoint
  cat > "$work/$1.json" <<CONFIG
{"model": {"model_type": "llama", $2, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "max_position_embeddings": 64},
 "data": {"train": ["$work/text.txt"], "tokenizer": "bytes", "seq_len": 16, "cache": "$work/cache"},
 "training": {$3, "micro_batch_size": 1, "global_batch_size": 4, "dtype": "f32"},
 "checkpoint": {$4}, "metrics": {"log_every": 1, "tensorboard": false, "progress": "off"}}
CONFIG
}
train() {  # CONFIG FOLDER PROCESSES words...
  local start=() config=$1 run=$2 count=$3; shift 3
  [ "$count" = 1 ] || start=(run --standalone --nproc-per-node "$count" --max-restarts 0)
  exec "$quench" "${start[@]}" train "$work/$config.json" --device=cpu "--run.folder=$work/$run" "$@"
}
losses() { sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([^,}]*\).*/\1 \2/p' "$work/$1/metrics/metrics.jsonl"; }

# Checkpoints of 100 MB: sent and fetched in parts.
large() {
  say "$1: uploads in parts"
  (train large large 1 "--checkpoint.remote=s3://$models/large") > "$work/large.log" 2>&1 || { tail "$work/large.log"; fail large; }
  grep 'is in the storage' "$work/large.log"
  mv "$work/large" "$work/large-sent"
  (train large large 1 "--checkpoint.remote=s3://$models/large") > "$work/large.log" 2>&1 || { tail "$work/large.log"; fail "large, again"; }
  grep 'resumed from' "$work/large.log"
  cmp "$work"/large{,-sent}/checkpoints/step-3/rank-00000.safetensors || fail "the file that came back is another"
  "$quench" pull "s3://$models/large/step-3" --local-dir "$work/step-3"
  "$quench" inspect "$work/step-3" --verify > "$work/verify.log" 2>&1 || { cat "$work/verify.log"; fail "what was pulled"; }
  "$quench" pull "s3://$models/large/step-3" --local-dir "$work/step-3" | grep 'fetched 0 files'
  "$quench" push "$work/step-3" "s3://$models/pushed/step-3"
  "$quench" push "$work/step-3" "s3://$models/pushed/step-3" | grep 'sent 0 files'
  rm -rf "$work/step-3"
  rm -rf "$work"/large{,-sent}
}

await_steps() {  # PROCESS COUNT
  local n steps
  for ((n = 0; n < 1200; ++n)); do
    steps=0
    [ ! -e "$work/killed/metrics/metrics.jsonl" ] || steps=$(wc -l < "$work/killed/metrics/metrics.jsonl")
    if ((steps >= $2)) || ! kill -0 "$1" 2>/dev/null; then return; fi
    sleep 0.05
  done
}

killed() {  # SERVER PROCESSES
  say "$1: $2 processes, killed $kills times"
  (train small calm "$2") > "$work/calm.log" 2>&1 || { tail "$work/calm.log"; fail calm; }
  local address=s3://$models/killed-$2 resumed=0 n child
  : > "$work/all.txt"
  for ((n = 1; n <= kills + 1; ++n)); do
    (train small killed "$2" "--checkpoint.remote=$address") > "$work/killed.log" 2>&1 &
    child=$!
    if ((n <= kills)); then
      await_steps $child $((15 + RANDOM % (350 / kills)))
      sleep "0.$((RANDOM % 3))"
      kill -9 $child 2>/dev/null || fail "the run ended before it was killed"
    fi
    { wait $child; } 2>/dev/null || ((n <= kills)) || { tail "$work/killed.log"; fail "the last run"; }
    sleep 1  # processes of the launcher end by themselves
    grep -q 'resumed from' "$work/killed.log" && ((++resumed))
    [ -e "$work/killed/metrics/metrics.jsonl" ] && losses killed >> "$work/all.txt"
    rm -rf "$work/killed"
  done
  losses calm | sort > "$work/calm.txt"
  sort -u "$work/all.txt" > "$work/seen.txt"
  # Every step that any of them took has the loss of the undisturbed run.
  [ -z "$(comm -13 "$work/calm.txt" "$work/seen.txt")" ] || { comm -13 "$work/calm.txt" "$work/seen.txt" | head; fail "other losses"; }
  say "$1: $resumed starts from the storage, $(wc -l < "$work/all.txt") steps with $(wc -l < "$work/seen.txt") of $(wc -l < "$work/calm.txt") losses, all equal"
  rm -rf "$work/calm"
}

seq 1 4000 | awk '{print "line " $1 * 37 % 101 " of the text"}' > "$work/text.txt"
config small '"vocab_size": 509, "hidden_size": 24, "intermediate_size": 37' '"steps": 1000' '"interval": 10, "keep_latest": 2'
config large '"vocab_size": 32768, "hidden_size": 256, "intermediate_size": 64' '"steps": 3' '"interval": 1, "keep_latest": 1'
for server in "${servers[@]}"; do
  models=models
  "serve_$server"
  large "$server"
  killed "$server" 1
  killed "$server" 2
done
say "s3_test.sh: passed on ${servers[*]}"
