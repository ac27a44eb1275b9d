#!/usr/bin/env bash
# Strong symbols that the shared libraries export are Quench's own: one named like another library's would stand for it in the
# whole process.
# Usage: symbols_test.sh BUILD_FOLDER
set -euo pipefail
status=0 count=0
for library in "$1"/libquench_*.so; do
  count=$((count + 1))
  foreign=$(nm -D --defined-only "$library" | awk '$2 ~ /^[TDBR]$/ { print $3 }' | grep -v quench || true)
  [ -z "$foreign" ] || { echo "$library exports:" $foreign; status=1; }
done
[ "$count" -ge 8 ] || { echo "only $count libraries in $1"; exit 1; }
exit $status
