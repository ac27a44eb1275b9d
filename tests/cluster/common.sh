# Shared by the scripts of this folder: a tiny run, hosts that are network namespaces, processes that are told apart.
# Source it behind: program=PATH of quench, work=an empty folder.

say() { printf '== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

# Every process that the test starts carries this variable.
QUENCH_TEST_MARK="$(basename "$0")-$$"
export QUENCH_TEST_MARK OMP_NUM_THREADS=1

# The run's config, and a text to learn.
make_project() {  # STEPS
  seq 1 4000 | awk '{print "line " $1 * 37 % 101 " of the text"}' > "$work/text.txt"
  cat > "$work/run.json" <<CONFIG
{"model": {"model_type": "llama", "vocab_size": 509, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64},
 "data": {"train": ["$work/text.txt"], "tokenizer": "bytes", "seq_len": 16, "cache": "$work/cache"},
 "training": {"steps": $1, "micro_batch_size": 1, "global_batch_size": 4, "dtype": "f32"},
 "lr_schedule": {"decay_steps": 10000},
 "checkpoint": {"interval": 1, "keep_latest": 2},
 "metrics": {"log_every": 1, "tensorboard": false},
 "export": {"format": "hf", "folder": "$work/export"}}
CONFIG
}
# The words of a training run into the folder NAME.
train_words() { printf '%s\n' train "$work/run.json" --device=cpu "--run.folder=$work/$1" "--export.folder=$work/$1-hf"; }

steps_of() { cat "$work/$1/metrics/metrics.jsonl" 2>/dev/null | wc -l; }
wait_for_steps() {  # NAME COUNT SECONDS
  for _ in $(seq $(($3 * 20))); do [ "$(steps_of "$1")" -ge "$2" ] && return; sleep 0.05; done
  fail "$1: no $2 steps within $3 s"
}
same_weights() {  # NAME NAME
  cmp "$work/$1-hf/model.safetensors" "$work/$2-hf/model.safetensors" || fail "the weights of $1 are not those of $2"
}
verify_checkpoints() {  # NAME
  local folder
  for folder in "$work/$1"/checkpoints/step-*; do
    case $folder in *.tmp-* | *'*') continue ;; esac
    "$program" inspect "$folder" --verify > "$work/verify.txt" 2>&1 || { cat "$work/verify.txt"; fail "$folder is damaged"; }
  done
}

# Ids of living processes that carry the mark, but this shell and its own.
marked() {
  local entry id
  for entry in /proc/[0-9]*; do
    id=${entry#/proc/}
    grep -qzx "QUENCH_TEST_MARK=$QUENCH_TEST_MARK" "$entry/environ" 2>/dev/null || continue
    case $(cat "$entry/cmdline" 2>/dev/null | tr '\0' ' ') in *quench*\ train\ * | *quench*\ run\ *) echo "$id" ;; esac
  done
}
no_orphans() {
  local left
  for _ in $(seq 100); do left=$(marked); [ -z "$left" ] && return; sleep 0.05; done
  fail "processes are left over: $left"
}

# Two hosts with names of their own and a link between them: 10.77.0.1 and 10.77.0.2. Needs root and iproute2.
hosts_up() {
  ip netns add quench-a && ip netns add quench-b || fail "no network namespaces here (root? iproute2?)"
  ip link add qa0 netns quench-a type veth peer name qb0 netns quench-b
  ip -n quench-a addr add 10.77.0.1/24 dev qa0
  ip -n quench-b addr add 10.77.0.2/24 dev qb0
  local h
  for h in a b; do ip -n quench-$h link set lo up; ip -n quench-$h link set q${h}0 up; done
}
hosts_down() {
  local h
  for h in a b; do kill_host $h; ip netns del quench-$h 2>/dev/null; done
  true
}
# With a file $work/quench-a.hosts, that is the host's /etc/hosts.
on_host() {  # a|b COMMAND ...
  local name=quench-$1 names=$work/quench-$1.hosts; shift
  [ -e "$names" ] || names=
  # shellcheck disable=SC2016
  exec ip netns exec "$name" unshare --uts --mount sh -c \
    'hostname "$0"; [ -z "$1" ] || mount --bind "$1" /etc/hosts || exit; shift; exec "$@"' "$name" "$names" "$@"
}
# All that runs on the host, at once.
kill_host() { ip netns pids quench-"$1" 2>/dev/null | xargs -r kill -9 2>/dev/null; true; }
