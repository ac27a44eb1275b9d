#!/usr/bin/env bash
# Runs what scripts/gpu_test.sh packed beside this file, on a machine with a GPU and its driver. cuBLAS and cuDNN are taken
# from a CUDA toolkit or from the packages of python3.
# Usage: run.sh [GTEST OPTION ...]             the GPU tests: kernels, then models and whole runs
#        run.sh sanitize [TOOL,...] [FILTER]   the kernels' tests under compute-sanitizer (default:
#                                              memcheck,racecheck,initcheck; FILTER as for --gtest_filter)
#        run.sh quench ARGUMENT ...            the program
#        run.sh dist [N]                       groups of N GPUs (default: all), checked, with their speed
#        run.sh bench [PART ...]               speed of the kernels alone
#        run.sh unpack                         prints the folder with bin/quench
#   QUENCH_SANITIZER_OPTIONS  further options for compute-sanitizer
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
files=$here/files

if [ ! -x "$files/bin/quench" ] || [ "$here/files.tar.xz" -nt "$files/unpacked" ]; then
  rm -rf "$files"
  mkdir -p "$files"
  tar -C "$files" -xJf "$here/files.tar.xz"
  touch "$files/unpacked"
fi

paths=$files/lib
add() { if [ -d "$1" ]; then paths+=:$1; fi; }
for folder in /usr/local/cuda/lib64 /usr/local/cuda-*/lib64; do add "$folder"; done
if command -v python3 >/dev/null; then
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  for folder in "$packages"/nvidia/*/lib; do add "$folder"; done
fi
export LD_LIBRARY_PATH=$paths${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export QUENCH_GOLDEN_DIR=$files/tests/golden QUENCH_REFERENCE_DIR=$files/tests/reference
export QUENCH_PROGRAM=$files/bin/quench

sanitizer() {
  command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | tail -n 1 | grep . ||
    { echo "error: compute-sanitizer is not installed" >&2; return 1; }
}

case ${1:-tests} in
  quench)
    shift
    exec "$files/bin/quench" "$@"
    ;;
  dist)
    exec "$files/bin/quench" run --nproc-per-node "${2:-gpu}" -- "$files/bin/nccl_driver"
    ;;
  bench)
    shift
    exec "$files/bin/quench_cuda_bench" "$@"
    ;;
  unpack) echo "$files" ;;
  sanitize)
    tools=${2:-memcheck,racecheck,initcheck}
    program=$(sanitizer)
    status=0
    for tool in ${tools//,/ }; do
      echo "== $tool"
      # shellcheck disable=SC2086  # several options in one variable
      "$program" --tool "$tool" --error-exitcode 1 --print-limit 20 ${QUENCH_SANITIZER_OPTIONS:-} \
        "$files/bin/quench_cuda_tests" --gtest_brief=1 --gtest_filter="${3:-*}" || status=1
    done
    exit $status
    ;;
  tests | -*)
    [ "${1:-}" = tests ] && shift
    status=0
    for program in "$files"/bin/quench_cuda_tests "$files"/bin/quench_cuda_model_tests; do
      echo "== $(basename "$program")"
      "$program" "$@" || status=1
    done
    exit $status
    ;;
  *)
    sed -n '4,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
