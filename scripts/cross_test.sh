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

# What cannot run, by part: "reason | filter of GoogleTest".
declare -A not_run=()

failed=0 passed=0
run_tests() { # part level
  local part=$1 level=$2 program=$build/tests/quench_${1}_tests log filter=-*Slow* reason
  [ -x "$program" ] || { echo "error: $program is not built" >&2; failed=$((failed + 1)); return; }
  while IFS='|' read -r reason tests; do
    [ -z "$reason" ] || filter+=:${tests// /}
  done <<<"${not_run[$part]:-}"
  log=$build/$part.level_$level.log
  QUENCH_CPU_LEVEL=$level emulate max "$program" --gtest_filter="$filter" >"$log" 2>&1
  local status=$? good bad
  good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log")
  bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log")
  printf '%-10s level %s  %5s passed  %3s failed\n' "$part" "$level" "${good:-0}" "${bad:-0}"
  passed=$((passed + ${good:-0}))
  if [ $status -ne 0 ]; then
    failed=$((failed + 1))
    grep '^\[  FAILED  \] .*\.' "$log" | sort -u || tail -n 5 "$log"
    echo "  status $status, output in $log"
  fi
}
