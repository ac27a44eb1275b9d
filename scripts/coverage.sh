#!/usr/bin/env bash
# Line coverage of core, autograd and nn by their own tests; prints one row a folder and the total.
# Needs gcovr (apt-get install gcovr). Usage: scripts/coverage.sh
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,3s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

command -v gcovr >/dev/null || { echo "coverage.sh: gcovr is not installed (apt-get install gcovr)" >&2; exit 2; }
cmake --preset coverage >/dev/null
cmake --build build/coverage --target quench_core_tests quench_autograd_tests quench_nn_tests
find build/coverage -name '*.gcda' -delete
for module in core autograd nn; do
  ./build/coverage/tests/quench_${module}_tests --gtest_brief=1
done
for module in core autograd nn; do
  printf '%-9s ' "$module"
  gcovr --root . --filter "$module/" -j "$(nproc)" build/coverage \
    2>/dev/null | awk '/^TOTAL/ {print $2 " lines, " $4 " covered"}'
done
