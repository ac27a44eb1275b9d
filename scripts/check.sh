#!/usr/bin/env bash
# Style checks that need no build: formatting, direction of includes, file lengths, unfinished marks, machine paths.
# Prints one line a finding and exits 1 when there is any. Runs in seconds; scripts/format.sh mends the formatting.
#   scripts/check.sh [--no-format]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check_format=1
for argument in "$@"; do
  case "$argument" in
    --no-format) check_format=0 ;;
    -h | --help) sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "check.sh: unknown argument '$argument'" >&2; exit 2 ;;
  esac
done

findings=0
report() {  # reads findings from standard input, one a line
  local lines
  lines=$(cat)
  [ -z "$lines" ] && return
  printf '%s\n' "$lines"
  findings=$((findings + $(printf '%s\n' "$lines" | wc -l)))
}

mapfile -d '' -t sources < <(
  git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' |
    while IFS= read -r -d '' file; do [ -e "$file" ] && printf '%s\0' "$file"; done
)
mapfile -d '' -t texts < <(
  git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' '*.cu' '*.cuh' '*.py' '*.sh' '*.cmake' \
    '*.txt' '*.md' '*.json' ':!tests/golden' |
    while IFS= read -r -d '' file; do [ -e "$file" ] && printf '%s\0' "$file"; done
)
[ ${#sources[@]} -gt 0 ] || { echo "check.sh: no sources found; run it inside the repository" >&2; exit 2; }

# Formatting.
if [ $check_format = 1 ]; then
  if clang_format=$(command -v clang-format-14); then
    report < <(
      printf '%s\0' "${sources[@]}" |
        xargs -0 -n 16 -P "$(nproc)" "$clang_format" --dry-run --ferror-limit=1 2>&1 |
        sed -n 's/^\([^: ]*\):\([0-9]*\):[0-9]*: \(warning\|error\): .*clang-formatted.*/\1:\2: not formatted (scripts\/format.sh)/p' |
        sort -t: -k1,1 -u
    )
  else
    echo "check.sh: clang-format-14 is not installed (apt-get install clang-format-14)" >&2
    findings=$((findings + 1))
  fi
fi

# Includes follow core <- autograd <- nn <- recipes <- distributed <- train <- apps; data uses core alone; nobody
# includes apps or tests, except that tests may include anything.
report < <(
  awk '
    BEGIN {
      split("core autograd nn recipes distributed train apps", order, " ")
      for (i in order) rank[order[i]] = i
      allowed["data"] = "core data"
    }
    FNR == 1 { split(FILENAME, parts, "/"); module = parts[1] }
    module == "tests" { nextfile }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      target = $0
      sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
      if (target !~ /\//) next
      split(target, parts, "/"); used = parts[1]
      if (used == module) next
      if (used == "tests" || used == "apps" || used == "bench") ok = 0
      else if (!(used in rank) && used != "data") ok = 1     # a library header in quotes
      else if (module == "data") ok = used == "core"
      else if (used == "data") ok = module == "train" || module == "apps" || module == "bench"
      else if (module in rank) ok = rank[used] < rank[module]
      else ok = 1                                            # bench and the like may use every module
      if (!ok) printf "%s:%d: %s may not include %s\n", FILENAME, FNR, module, target
    }' "${sources[@]}"
)

# Lengths.
report < <(awk '
  FNR == 1 && NR > 1 { check() }
  { file = FILENAME; lines = FNR }
  function check() { if (lines > 600) printf "%s: %d lines; split it (at most 600, better 400)\n", file, lines }
  END { check() }' "${sources[@]}")
awk '
  FNR == 1 && NR > 1 { check() }
  { file = FILENAME; lines = FNR }
  function check() { if (lines > 400 && lines <= 600) printf "warning: %s: %d lines (better under 400)\n", file, lines }
  END { check() }' "${sources[@]}"

# Unfinished marks, and paths of the machine it was written on. The bracketed letters keep this file out of its own
# findings.
report < <(grep -nE '\b(TOD[O]|FIXM[E]|XX[X])\b' -- "${texts[@]}" /dev/null | sed 's/^\([^:]*:[0-9]*\):.*/\1: unfinished mark/')
report < <(grep -nE '(^|[^A-Za-z0-9_.$}])/(wor[k]|w[t]|op[t])/' -- "${texts[@]}" /dev/null |
  sed 's/^\([^:]*:[0-9]*\):.*/\1: path of a developer machine/')

if [ $findings -gt 0 ]; then
  echo "check.sh: $findings findings"
  exit 1
fi
echo "check.sh: ${#sources[@]} sources are clean"
