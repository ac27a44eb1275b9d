#!/usr/bin/env bash
# 64-bit ARM from a machine of another kind: cross-compiles the program and its tests, runs those of the CPU under QEMU's
# user emulation, the kernels at each of their levels, and trains a few steps. Prints counts and what is not run, and why.
# Usage: scripts/cross_test.sh [--no-build] [PART ...]
#   PART  core, ops, autograd, nn, recipes, data, export, train, program (default: all)
set -uo pipefail
case ${1:-} in -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

all=(core ops autograd nn recipes data export train program)
no_build=
[ "${1:-}" = --no-build ] && { no_build=1; shift; }
parts=("$@")
[ $# -gt 0 ] || parts=("${all[@]}")
for part in "${parts[@]}"; do
  [[ " ${all[*]} " == *" $part "* ]] || { echo "cross_test.sh: unknown part '$part': expected one of ${all[*]}" >&2; exit 2; }
done

build=build-aarch64 root=$PWD/.deps/aarch64/root
if [ -z "$no_build" ]; then
  ./scripts/setup.sh cross || exit 1
  cmake --preset aarch64 >/dev/null || exit 1
  targets=(quench)
  for part in "${parts[@]}"; do [ "$part" = program ] || targets+=("quench_${part}_tests"); done
  cmake --build "$build" --target "${targets[@]}" || exit 1
fi

# 64 GiB of addresses: QEMU would keep 16 GiB of tables for the 4 TiB that the allocator reserves.
emulate() { # processor command...
  OMP_WAIT_POLICY=passive qemu-aarch64 -R 0x1000000000 -L "$root" -cpu "$@"
}

# What is not run, a line each: "part | filter of GoogleTest | reason".
read -r -d '' not_run <<'END'
core|SignalsFork*:Plugin*:SharedLibrary*|forks, or starts programs of the target: needs a registered emulator
END

failed=0 passed=0
run_tests() { # part level
  local part=$1 level=$2 program=$build/tests/quench_${1}_tests filter=-*Slow* log status good bad
  [ -x "$program" ] || { echo "error: $program is not built" >&2; failed=$((failed + 1)); return; }
  filter+=$(awk -F'|' -v part="$part" '$1 == part { printf ":%s", $2 }' <<<"$not_run")
  log=$build/$part.level_$level.log
  QUENCH_CPU_LEVEL=$level emulate max "$program" --gtest_filter="$filter" >"$log" 2>&1
  status=$?
  good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log")
  bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log")
  printf '%-9s level %s: %5s passed %3s failed\n' "$part" "$level" "${good:-0}" "${bad:-0}"
  passed=$((passed + ${good:-0}))
  [ $status -eq 0 ] && return
  failed=$((failed + 1))
  grep '^\[  FAILED  \] .*\.' "$log" | sort -u || tail -n 5 "$log"
  echo "  status $status; output: $log"
}

check() { # what expected got
  if [[ $3 == *"$2"* ]]; then
    echo "program: $1: $2"
    passed=$((passed + 1))
  else
    printf 'program: %s: expected "%s", got:\n%s\n' "$1" "$2" "$3"
    failed=$((failed + 1))
  fi
}

# Losses of eight steps of a small model, one a line. $1: folder of the run; the rest: the program's command line.
losses() {
  local folder=$1
  shift
  "$@" train shakespeare_char --device=cpu --data.train=README.md --data.validation=README.md --training.steps=8 \
    --training.threads=2 --lr_schedule.warmup_steps=1 --metrics.log_every=1 --run.folder="$folder" >"$folder.log" 2>&1 ||
    { tail -n 5 "$folder.log" >&2; return 1; }
  sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' "$folder/metrics/metrics.jsonl"
}

# Equal up to the rounding of sums in another order.
check_losses() { # what file file
  local worst
  worst=$(paste "$2" "$3" | awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (NF < 2) d = 1; if (d > m) m = d }
                                 END { printf "%.1e", NR == 8 ? m : 1 }')
  if awk -v d="$worst" 'BEGIN { exit !(d < 1e-4) }'; then
    echo "program: losses of $1: equal to $worst"
    passed=$((passed + 1))
  else
    echo "program: losses of $1 differ by $worst"
    paste "$2" "$3"
    failed=$((failed + 1))
  fi
}

run_program() {
  local work=$PWD/$build/cross_run quench=$build/quench level
  rm -rf "$work"
  mkdir -p "$work"
  check "Cortex-A72" ", aarch64 (NEON)," "$(emulate cortex-a72 "$quench" doctor 2>&1)"
  check "Neoverse N1" ", aarch64 (NEON, dotprod)," "$(emulate neoverse-n1 "$quench" doctor 2>&1)"
  check "the newest processor" ", aarch64 (NEON, dotprod, bf16, i8mm)," "$(emulate max "$quench" doctor 2>&1)"
  for level in 1 3; do
    QUENCH_CPU_LEVEL=$level losses "$work/level_$level" emulate max "$quench" >"$work/losses_$level"
  done
  check_losses "levels 3 and 1" "$work/losses_3" "$work/losses_1"
  if [ "$(uname -m)" = x86_64 ] && [ -x build/quench ]; then
    losses "$work/x86_64" build/quench >"$work/losses_x86_64"
    check_losses "aarch64 and x86_64" "$work/losses_3" "$work/losses_x86_64"
  fi
}

for part in "${parts[@]}"; do
  case $part in
    program) run_program ;;
    ops) for level in 1 2 3; do run_tests ops $level; done ;;
    *) run_tests "$part" 3 ;;
  esac
done
echo
echo "$passed passed, $failed failed"
echo "not run:"
awk -F'|' '{ printf "  %s: %s (%s)\n", $1, $3, $2 }' <<<"$not_run"
[ $failed -eq 0 ]
