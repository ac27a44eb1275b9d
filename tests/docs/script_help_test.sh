#!/usr/bin/env bash
# --help of every script prints its usage and does nothing else, from the repository root and from another folder.
# Usage: script_help_test.sh
set -uo pipefail
cd "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/../.."
failures=0
for script in scripts/*.sh; do
  [[ $script == scripts/gpu_run.sh ]] && continue # part of a pack: --help goes to the tests
  for call in "./$script" "cd scripts && ./${script#scripts/}" "cd tests && ../$script"; do
    help=$(timeout 20 bash -c "$call --help" 2>&1)
    status=$?
    if [[ $status -ne 0 || $help != *"$script"* || $(wc -l <<< "$help") -gt 20 ]]; then
      printf '%s --help: status %s\n%s\n' "$call" "$status" "$help"
      failures=$((failures + 1))
    fi
  done
done
said=$(scripts/demo.sh --steps 2>&1)
if [[ $said != "demo.sh: --steps needs a value" ]]; then
  echo "demo.sh --steps: $said"
  failures=$((failures + 1))
fi
exit $((failures > 0))
