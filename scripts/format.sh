#!/usr/bin/env bash
# Formats every C++ and CUDA source of the tree as .clang-format says.
#   scripts/format.sh [FILE...]     default: all tracked and new sources
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,3s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

clang_format=$(command -v clang-format-14 || true)
if [ -z "$clang_format" ]; then
  echo "format.sh: clang-format-14 is not installed (apt-get install clang-format-14); other releases format differently" >&2
  exit 1
fi

if [ $# -gt 0 ]; then
  printf '%s\0' "$@"
else
  git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' |
    while IFS= read -r -d '' file; do [ -e "$file" ] && printf '%s\0' "$file"; done
fi | xargs -0 -r -n 16 -P "$(nproc)" "$clang_format" -i
