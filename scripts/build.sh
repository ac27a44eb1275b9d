#!/usr/bin/env bash
# Builds into build/ and leaves the program at build/quench.
# Usage: scripts/build.sh [--cpu] [CMAKE OPTION ...]
#   --cpu   leave the GPU part out even where the CUDA toolkit is installed
set -euo pipefail
cd "$(dirname "$0")/.."

./scripts/setup.sh build
options=(-DQUENCH_TESTS=OFF -DQUENCH_BENCH=OFF -DQUENCH_CUDA=ON)
if [ "${1:-}" = --cpu ]; then
  options+=(-DQUENCH_CUDA=OFF)
  shift
fi
[ -e build/CMakeCache.txt ] || options+=(-DQUENCH_UNITY=ON) # from nothing; a folder that exists keeps its way
cmake --preset release "${options[@]}" "$@" >/dev/null
cmake --build build --target quench
echo "built build/quench"
