#!/usr/bin/env bash
# 64-bit ARM from a machine of another kind: cross-compiles the program and its tests, runs those of the CPU under QEMU's
# user emulation, the kernels at each of their levels, and trains a few steps. Prints counts and what is not run, and why.
# Usage: scripts/cross_test.sh [--no-build] [PART ...]
#   PART  core, ops, autograd, nn, engine, recipes, data, export, train, distributed, apps, program, module (default: all)
# distributed, apps and module start programs: they are run where the kernel passes those of ARM to the emulator (Debian:
# apt-get install qemu-user-binfmt binfmt-support).
set -uo pipefail
case ${1:-} in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

all=(core ops autograd nn engine recipes data export train distributed apps program module)
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
  for part in "${parts[@]}"; do [[ $part = program || $part = module ]] || targets+=("quench_${part}_tests"); done
  cmake --build "$build" --target "${targets[@]}" || exit 1
fi

# 64 GiB of addresses: QEMU would keep 16 GiB of tables for the 4 TiB that the allocator reserves.
emulate() { # processor command...
  OMP_WAIT_POLICY=passive qemu-aarch64 -R 0x1000000000 -L "$root" -cpu "$@"
}

# Programs that the program starts.
export QEMU_LD_PREFIX=$root QEMU_RESERVED_VA=0x1000000000
registered=
"$build/quench" --version >/dev/null 2>&1 && registered=1

# What is not run of these parts, a line each: "regular expression of ctest's names|reason".
read -r -d '' not_run <<'END'
^core\.Allocator\.(BlocksLieAcross|TheLastBlockGrows)|needs the 4 TiB of addresses that QEMU is refused
^core\.SafetensorsHeader\.HostileSizes|bounds a time
^distributed\.GroupOnOneCore|bounds the time of a processor
^recipes\..*LossCurveFollowsF32/qat_|training curves, a minute each; those of the other recipes are run
END

[ -n "$registered" ] || not_run+=$'\n^core\\.Log\\.LibrariesPrintNothing|starts a program, and the kernel does not know the emulator'
failed=0 passed=0
run_tests() { # regular expression
  local log=$build/cross_test.log out_of bad
  ctest --test-dir "$build" -j "$(nproc)" --timeout 1800 -LE slow -R "$1" -E "$(sed 's/|[^|]*$//' <<<"$not_run" | paste -sd"|")" >"$log" 2>&1
  bad=$(sed -n 's/.* \([0-9]*\) tests failed out of .*/\1/p' "$log")
  out_of=$(sed -n 's/.* tests failed out of \([0-9]*\).*/\1/p' "$log")
  [ -n "$out_of" ] || { tail -n 5 "$log"; failed=$((failed + 1)); return; }
  sed -n '/^The following tests FAILED/,$p' "$log" | grep '^\s*[0-9]* - '
  printf '%-24s %5s passed, %s failed\n' "$1" $((out_of - bad)) "$bad"
  passed=$((passed + out_of - bad)) failed=$((failed + bad))
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

# Losses of four steps of a small model, one a line. $1: folder of the run; the rest: the program's command line.
losses() {
  local folder=$1
  shift
  "$@" train shakespeare_char --device=cpu --data.train=README.md --data.validation=README.md --data.seq_len=32 \
    --training.micro_batch_size=2 --training.global_batch_size=2 --training.steps=4 --lr_schedule.warmup_steps=1 \
    --evaluation.steps=1 --metrics.log_every=1 --run.folder="$folder" >"$folder.log" 2>&1 ||
    { tail -n 5 "$folder.log" >&2; return 1; }
  sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' "$folder/metrics/metrics.jsonl"
}

# Equal up to the rounding of sums in another order.
check_losses() { # what file file
  local worst
  worst=$(paste "$2" "$3" | awk '{ d = ($1 - $2) / $2; if (d < 0) d = -d; if (NF < 2) d = 1; if (d > m) m = d }
                                 END { printf "%.1e", NR == 4 ? m : 1 }')
  if awk -v d="$worst" 'BEGIN { exit !(d < 1e-5) }'; then
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

# Python 3.13 with the wheel's files: the module at the processor's highest level.
run_module() {
  local python=$PWD/.deps/aarch64/python work=$PWD/$build/cross_module wheel part log counted
  wheel=$(ls -t dist/quench_train-*_aarch64.whl 2>/dev/null | head -n 1)
  [ -n "$wheel" ] || { echo "module: dist/ has no wheel of 64-bit ARM: scripts/wheel.sh, then scripts/wheel.sh --arm64"; failed=$((failed + 1)); return; }
  rm -rf "$work"
  python3 -m zipfile -e "$wheel" "$work"
  chmod +x "$work/quench/bin/quench"
  local lib=$python/usr/lib/aarch64-linux-gnu
  for part in model trainer; do
    log=$work/$part.log
    (cd python/tests && env QEMU_LD_PREFIX="$python" PYTHONHOME="$python/usr" PYTHONPATH="$work:$python/usr/lib/python3/dist-packages" \
      LD_LIBRARY_PATH="$lib:$lib/blas:$lib/lapack" QUENCH_PROGRAM="$work/quench/bin/quench" OMP_WAIT_POLICY=passive \
      "$python/usr/bin/python3.13" -m unittest "test_$part") >"$log" 2>&1
    counted=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$log")
    if [ "$(tail -n 1 "$log")" = OK ]; then
      echo "module: test_$part: $counted passed"
      passed=$((passed + counted))
    else
      tail -n 20 "$log"
      failed=$((failed + 1))
    fi
  done
}

skipped=
for part in "${parts[@]}"; do
  case $part in
    program) run_program ;;
    module)
      if [ -n "$registered" ]; then run_module; else skipped+=" $part"; fi ;;
    distributed | apps)
      if [ -n "$registered" ]; then run_tests "^$part\\."; else skipped+=" $part"; fi ;;
    ops) run_tests '^ops\.' ;;  # ops.level_1 and ops.level_2 among them
    *) run_tests "^$part\\." ;;
  esac
done
echo "$passed passed, $failed failed"
[ -z "$skipped" ] || echo "not run:$skipped (start programs, and the kernel does not know the emulator)"
echo "not run: the module's tests of absent and foreign modules (they start Python without an environment)"
echo "not run: slow tests, plug-ins, programs built against an installed prefix, commands of the documentation"
printf '%s\n' "$not_run" | while IFS= read -r line; do echo "not run: ${line%|*} (${line##*|})"; done
[ $failed -eq 0 ]
