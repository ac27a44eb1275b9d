#!/usr/bin/env bash
# Builds into build/: the program build/quench, and the libraries for C++ programs, which are made of the same objects.
# `cmake --install build --prefix FOLDER` installs both.
# Usage: scripts/build.sh [--cpu] [CMAKE OPTION ...]
#   --cpu   leave the GPU part out even where the CUDA toolkit is installed
# GPU kernels are compiled for the GPUs of this machine, or for sm_90a where there is none; -DQUENCH_CUDA_FAT=ON compiles for
# every GPU since Ampere.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

./scripts/setup.sh build
options=(-DQUENCH_TESTS=OFF -DQUENCH_BENCH=OFF -DQUENCH_CUDA=ON -DQUENCH_CUDA_FAT=OFF)
if [ "${1:-}" = --cpu ]; then
  options+=(-DQUENCH_CUDA=OFF)
  shift
fi
[ -e build/CMakeCache.txt ] || options+=(-DQUENCH_UNITY=ON) # from nothing; a folder that exists keeps its way
# "89-real;90a-real": the GPUs that the driver lists, from compute capability 8.0 on. 9.0 has kernels of sm_90a.
architectures=$({ nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null || true; } |
  grep -E '^([89]|1[0-9])\.[0-9]$' | sort -u | sed 's/\.//; s/^90$/90a/; s/$/-real/' | paste -sd ';' || true)
[ -z "$architectures" ] || options+=("-DCMAKE_CUDA_ARCHITECTURES=$architectures")
cmake --preset release "${options[@]}" "$@" >/dev/null
cmake --build build
echo "built build/quench"
