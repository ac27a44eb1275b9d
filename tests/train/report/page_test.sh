#!/usr/bin/env bash
# The script of the report's page, run by Node.js; exits 77 where there is none.
# Usage: page_test.sh QUENCH
set -euo pipefail
command -v node >/dev/null || { echo "skipped: the script of the page needs node (apt-get install nodejs)"; exit 77; }
exec node "$(dirname "$0")/page_test.mjs" "$1"
