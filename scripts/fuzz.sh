#!/usr/bin/env bash
# Builds the fuzz targets with Clang, AddressSanitizer and UBSan, and runs each for a while from its seeds.
# Exits 1 if a target finds anything; the input that did it is left in build/fuzz/findings.
#   scripts/fuzz.sh [seconds for each target, default 5] [name ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  -h | --help) sed -n '2,4s/^# \{0,1\}//p' scripts/fuzz.sh; exit 0 ;;
esac
seconds="${1:-5}"
if ! [[ "$seconds" =~ ^[1-9][0-9]*$ ]]; then
  echo "fuzz.sh: '$seconds' is not a number of seconds" >&2
  exit 2
fi
shift || true
if ! command -v clang++-16 > /dev/null; then
  echo "fuzz.sh: clang++-16 is not installed (apt-get install clang-16 libclang-rt-16-dev)" >&2
  exit 2
fi

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do names+=("$(basename "$source" _fuzz.cpp)"); done
fi
export QUENCH_ARROW_LIBRARY="$PWD/build/fuzz/libquench_arrow.so"

if ! configured=$(cmake --preset fuzz 2>&1); then
  printf '%s\n' "$configured" >&2
  exit 1
fi
cmake --build build/fuzz --target "${names[@]/%/_fuzz}"

# Undefined behaviour is a finding, not a remark.
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

findings=build/fuzz/findings
mkdir -p "$findings"

# Runs one target; prints its line at its end.
run_target() {
  local name=$1 corpus="build/fuzz/corpus/$1" log="$findings/$1.log" arguments runs
  mkdir -p "$corpus"
  arguments=(-max_total_time="$seconds" -max_len=16384 -timeout=25 -rss_limit_mb=2048 -print_final_stats=1
    -artifact_prefix="$findings/$name-" "$corpus")
  [ -d "tests/fuzz/corpus/$name" ] && arguments+=("tests/fuzz/corpus/$name")
  [ -f "tests/fuzz/$name.dict" ] && arguments+=(-dict="tests/fuzz/$name.dict")
  if "build/fuzz/tests/fuzz/${name}_fuzz" "${arguments[@]}" > "$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%-24s ok, %s inputs\n' "$name" "${runs:-0}"
  else
    printf '%-24s FAILED, see %s\n%s\n' "$name" "$log" "$(tail -n 40 "$log")"
    return 1
  fi
}

# Each takes one processor.
processes=()
for name in "${names[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
  run_target "$name" &
  processes+=($!)
done
failed=()
for i in "${!names[@]}"; do
  wait "${processes[$i]}" || failed+=("${names[$i]}")
done

if [ ${#failed[@]} -gt 0 ]; then
  echo "fuzz.sh: findings in ${failed[*]}; the inputs are in $findings" >&2
  exit 1
fi
