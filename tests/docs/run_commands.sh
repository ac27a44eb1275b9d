#!/usr/bin/env bash
# Runs the commands of documentation pages as a reader would: every fenced block marked sh, in order, in one shell a page.
# Comments in the page, right before a block, say what differs; readers do not see them:
#   <!-- run: no; REASON -->       the block is not run
#   <!-- run: with NAME -->        the block is run under --with NAME only: it needs programs that NAME stands for
#   <!-- run: first; COMMANDS -->  run before it: stand-ins for what the reader has (a downloaded model, records)
#   <!-- run: edit; SED -->        the block is changed by sed: fewer steps, or no build
#   <!-- run: file NAME -->        the block, of any language, is written to NAME instead
# Usage: run_commands.sh [--program QUENCH] [--literal] [--with NAME] PAGE ...
#   --program QUENCH  in a scratch folder that looks like the source tree with this program built
#   --literal         in the current folder, without the edits, as on a fresh machine
#   --with NAME       with the blocks that are marked so
# Pages are paths relative to the source tree, e.g. README.md docs/guide/getting-started.md.
set -euo pipefail

QUENCH_SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export QUENCH_SOURCE
literal= program= with=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --literal) literal=1; shift ;;
    --program) program=$(realpath "$2"); shift 2 ;;
    --with) with+=" $2 "; shift 2 ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
[[ $# -gt 0 && ( $literal || $program ) ]] || { sed -n '2,13s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }

fail() { echo "error: $*" >&2; exit 1; }

# Prints the page as one script.
script_of() {
  local page=$1 line language='' body='' start=0 number=0 inside= fence='^```([a-z]*)$' mark='^<!-- run: (.*) -->$'
  local -a marks=()
  echo 'set -euo pipefail'
  while IFS= read -r line || [[ $line ]]; do
    number=$((number + 1))
    if [[ ! $inside && $line =~ $fence ]]; then
      inside=1 language=${BASH_REMATCH[1]} body='' start=$number
    elif [[ $inside && $line == '```' ]]; then
      inside=
      block "$page:$start" "$language" "$body" "${marks[@]}" || return 1
      marks=()
    elif [[ $inside ]]; then
      body+=$line$'\n'
    elif [[ $line =~ $mark ]]; then
      marks+=("${BASH_REMATCH[1]}")
    elif [[ $line == *'<!-- run:'* ]]; then
      fail "$page:$number: a run comment takes one whole line"
    elif [[ $line && ${#marks[@]} -gt 0 ]]; then
      fail "$page:$number: a run comment belongs right before a fenced block"
    elif [[ $line =~ ^\ {4}(\./scripts/|build/quench|quench |cmake |python3? ) ]]; then
      fail "$page:$number: commands stand in fenced blocks marked sh"
    fi
  done < "$(cd "$QUENCH_SOURCE" && realpath "$page")"
  [[ ! $inside ]] || fail "$page:$start: the block has no end"
}

block() {
  local where=$1 language=$2 body=$3 mark changed
  shift 3
  for mark in "$@"; do
    if [[ $mark == "file "* ]]; then
      printf "cat > '%s' <<'END_OF_BLOCK'\n%sEND_OF_BLOCK\n" "${mark#file }" "$body"
      return
    fi
  done
  if [[ $language != sh ]]; then
    [[ $# -eq 0 ]] || fail "$where: a run comment before a block that is not marked sh"
    return 0
  fi
  printf "echo '== %s'\n" "$where"
  for mark in "$@"; do
    case $mark in
      "no; "*) printf "echo %q\n" "not run: ${mark#no; }"; return ;;
      "with "*) [[ $with == *" ${mark#with } "* ]] || { printf "echo %q\n" "not run: needs ${mark#with }"; return; } ;;
      "first; "*) printf '%s\n' "${mark#first; }" ;;
      "edit; "*)
        [[ ! $literal ]] || continue
        changed=$(sed "${mark#edit; }" <<< "$body") || fail "$where: sed refuses '${mark#edit; }'"
        [[ $changed != "${body%$'\n'}" && $changed != "$body" ]] || fail "$where: '${mark#edit; }' changes nothing"
        body=$changed$'\n'
        ;;
      *) fail "$where: unknown run comment '$mark'" ;;
    esac
  done
  printf 'set -x\n%s{ set +x; } 2>/dev/null\n' "$body"
}

# The build folder of the program: a scratch folder has only the program itself.
QUENCH_BUILD=$(dirname "${program:-$PWD/build/quench}")
export QUENCH_BUILD
scratch=
if [[ ! $literal ]]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
fi
for page in "$@"; do
  script=$(script_of "$page")
  if [[ $literal ]]; then
    bash -c "$script" || fail "$page: a command failed"
    continue
  fi
  tree=$scratch/${page//\//-}
  mkdir -p "$tree/build"
  for name in README.md CHANGELOG.md configs docs scripts bench examples quench core autograd nn recipes; do ln -s "$QUENCH_SOURCE/$name" "$tree/$name"; done
  ln -s "$program" "$tree/build/quench"
  # Nothing is left behind in the home folder.
  (cd "$tree" && HOME=$scratch bash -c "$script") || fail "$page: a command failed"
done
