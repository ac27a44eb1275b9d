#!/usr/bin/env bash
# Kills random ranks, and the launcher, of runs that save every step, at random moments: before the ranks have met, in
# steps, in saves. A run must start again each time, no checkpoint be damaged, nothing be left over, and the weights in the
# end be those of an undisturbed run, bit for bit. A run that has come to its end is followed by another.
#   tests/cluster/random_kills.sh [--program build/quench] [KILLS=100 [SEED=1]]
set -uo pipefail
program=build/quench
[ "${1:-}" = --program ] && { program=$2; shift 2; }
program=$(realpath "$program")
kills=${1:-100} RANDOM=${2:-1}
work=$(mktemp -d)
# shellcheck source=tests/cluster/common.sh
. "$(dirname "$0")/common.sh"
launcher=
trap '[ -z "$launcher" ] || kill -9 $launcher 2>/dev/null; rm -rf "$work"' EXIT

make_project 60
say "undisturbed"
mapfile -t words < <(train_words calm)
"$program" run --standalone --nproc-per-node 2 "${words[@]}" > "$work/calm.log" 2>&1 || { tail "$work/calm.log"; fail calm; }

mapfile -t words < <(train_words killed)
start() {
  "$program" run --standalone --nproc-per-node 2 --max-restarts 1000000 --restart-backoff 0 --shutdown-timeout 5 \
    "${words[@]}" >> "$work/killed.log" 2>&1 &
  launcher=$!
}
# Children of the launcher that train; the orphan reaper is none of them.
ranks() {
  local child
  for child in $(pgrep -P $launcher); do
    case $(cat /proc/"$child"/cmdline 2>/dev/null | tr '\0' ' ') in *' train '*) echo "$child" ;; esac
  done
}

# The run has ended, or comes to its end now.
finish() {
  wait $launcher
  local status=$?
  launcher=
  [ $status = 0 ] || { tail -n 40 "$work/killed.log"; fail "the run ended with status $status"; }
  no_orphans
  verify_checkpoints killed
  if ls -d "$work"/killed/checkpoints/*.tmp-* 2>/dev/null; then fail "temporary files are left over"; fi
  same_weights killed calm
  rm -rf "$work/killed" "$work/killed-hf"
  ((++runs))
}
# Goes on with another run where this one has ended.
keep_running() { kill -0 $launcher 2>/dev/null || { finish; start; }; }

declare -A counts=([rank]=0 [launcher]=0)
runs=0
start
begin=$SECONDS
for ((i = 1; i <= kills; ++i)); do
  if ((RANDOM % 4)); then  # in the middle of training
    before=$(steps_of killed)
    for ((n = 0; n < 2400; ++n)); do
      [ "$(steps_of killed)" != "$before" ] && break
      keep_running
      sleep 0.05
    done
    ((n < 2400)) || { tail -n 40 "$work/killed.log"; fail "no step within two minutes of kill $((i - 1))"; }
  fi
  sleep "0.$(printf '%03d' $((RANDOM % 250)))"
  keep_running
  if ((RANDOM % 5 == 0)); then
    kill -9 $launcher; wait $launcher 2>/dev/null
    no_orphans
    verify_checkpoints killed
    ((++counts[launcher]))
    start
  else
    victims=()
    for ((n = 0; n < 400; ++n)); do
      mapfile -t victims < <(ranks)
      ((${#victims[@]} > 0)) && break
      keep_running
      sleep 0.05
    done
    ((${#victims[@]} > 0)) || fail "no ranks within 20 s of kill $((i - 1))"
    kill -9 "${victims[RANDOM % ${#victims[@]}]}" 2>/dev/null && ((++counts[rank]))
  fi
done
say "killed: ${counts[rank]} times a rank, ${counts[launcher]} times the launcher, in $((SECONDS - begin)) s; now to its end"
finish
say "random_kills.sh: $runs runs, $(grep -c 'resumed from' "$work/killed.log") resumptions, checkpoints whole, weights equal"
