#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run; ends with ctest's summary.
# Usage: scripts/test.sh [CTEST OPTION ...]    e.g. scripts/test.sh -L golden
#   QUENCH_FUZZ_SECONDS  seconds for each fuzz target (default 5; 0 leaves fuzzing out)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

./scripts/setup.sh test
./scripts/check.sh

options=(-DQUENCH_CUDA=ON -DQUENCH_TESTS=ON -DQUENCH_BENCH=ON -DQUENCH_PYTHON_MODULE=ON)
[ -e build/CMakeCache.txt ] || options+=(-DQUENCH_UNITY=ON) # from nothing; a folder that exists keeps its way
cmake --preset release "${options[@]}" >/dev/null
cmake --build build

if [ "${QUENCH_FUZZ_SECONDS:-5}" != 0 ]; then
  ./scripts/fuzz.sh "${QUENCH_FUZZ_SECONDS:-5}"
fi

labels=()
command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU || labels=(-LE gpu)
ctest --test-dir build --output-on-failure -j "$(nproc)" "${labels[@]}" "$@"
