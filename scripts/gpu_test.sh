#!/usr/bin/env bash
# The GPU tests: on this machine, or packed for another one.
# Usage: scripts/gpu_test.sh [CTEST OPTION ...]           builds and runs the tests labelled gpu (needs a GPU)
#        scripts/gpu_test.sh pack [--no-build] OUT_DIR    builds for sm_90a and packs program, tests, their libraries and
#                                                         tests/golden into OUT_DIR, with a run.sh (needs no GPU)
#   QUENCH_BUILD_DIR  where to build (default: build)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
build=${QUENCH_BUILD_DIR:-build}
programs=(quench quench_cuda_tests quench_cuda_model_tests quench_cuda_bench nccl_driver)
limit_mb=60

build_programs() {
  ./scripts/setup.sh test
  local options=(-DQUENCH_CUDA=ON -DQUENCH_TESTS=ON -DQUENCH_BENCH=ON)
  [ -e "$build/CMakeCache.txt" ] || options+=(-DQUENCH_UNITY=ON) # from nothing; a folder that exists keeps its way
  cmake --preset release -B "$build" "${options[@]}" "$@" >/dev/null
  cmake --build "$build" --target "${programs[@]}"
}

# Shared libraries of the given programs, without those that every Linux has and the driver's.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libcuda|ld-linux[^/]*)\.so' || true
}

pack() {
  local no_build=0
  [ "${1:-}" = --no-build ] && { no_build=1; shift; }
  [ $# = 1 ] || { sed -n '2,6s/^# \{0,1\}//p' scripts/gpu_test.sh >&2; exit 2; }
  local out=$1 staging program library
  [ $no_build = 1 ] || build_programs -DCMAKE_CUDA_ARCHITECTURES=90a-real
  staging=$(mktemp -d)
  # shellcheck disable=SC2064  # the folder as it is now
  trap "rm -rf '$staging'" EXIT
  mkdir -p "$staging/bin" "$staging/lib" "$staging/tests" "$out"
  for program in "${programs[@]}"; do
    local path=$build/$program
    [ -x "$path" ] || path=$build/tests/$program
    [ -x "$path" ] || path=$build/bench/$program
    [ -x "$path" ] || { echo "error: $program is not built in $build" >&2; exit 1; }
    strip -o "$staging/bin/$program" "$path"
  done
  while IFS= read -r library; do
    strip --strip-unneeded -o "$staging/lib/$(basename "$library")" "$library"
  done < <(libraries_of "$staging"/bin/*)
  cp -r tests/golden "$staging/tests/golden"
  mkdir -p "$staging/tests/reference"
  cp -r tests/reference/models "$staging/tests/reference/models"
  # The programs hold the same libraries of ours: a dictionary larger than one of them halves the file.
  tar -C "$staging" --use-compress-program "xz --lzma2=preset=3,dict=192MiB" -cf "$out/files.tar.xz" bin lib tests
  cp scripts/gpu_run.sh "$out/run.sh"
  local mb
  mb=$(du -sm "$out" | cut -f1)
  echo "packed ${programs[*]} into $out: $mb MB"
  [ "$mb" -lt $limit_mb ] || { echo "error: more than $limit_mb MB" >&2; exit 1; }
}

if [ "${1:-}" = pack ]; then
  shift
  pack "$@"
  exit
fi
command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU ||
  { echo "error: no GPU here; scripts/gpu_test.sh pack OUT_DIR makes a folder to run where there is one" >&2; exit 1; }
build_programs
ctest --test-dir "$build" --output-on-failure -L gpu "$@"
