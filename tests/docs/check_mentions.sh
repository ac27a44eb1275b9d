#!/usr/bin/env bash
# What README and docs mention in running text exists: verbs and their options, config keys, files of the source tree.
# Usage: check_mentions.sh QUENCH
set -euo pipefail
quench=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Every candidate of the completion is a name that the program knows.
sections=$("$quench" completion candidates quench train demo -- | sed -n 's/^--\([a-z_]*\)\.\t.*/\1/p')
[[ $sections ]] || { echo "error: no sections of the config" >&2; exit 1; }
keys=$(for section in $sections; do "$quench" completion candidates quench train demo "--$section."; done | sed 's/^--\(.*\)=\t.*/\1/')
sections_pattern=$(paste -sd'|' <<< "$sections")

findings=0
finding() { echo "$1: $2"; findings=$((findings + 1)); }

# The verb's help holds the option, or it is an override of a key that there is.
check_command() {
  local page=$1 span=$2 word help
  local -a words verb=()
  read -ra words <<< "$span"
  for word in "${words[@]:1}"; do
    [[ $word =~ ^[a-z][a-z-]*$ && ${#verb[@]} -lt 2 ]] || break
    "$quench" completion candidates quench "${verb[@]}" "$word" | cut -f1 | grep -qxF -- "$word" || break
    verb+=("$word")
  done
  [[ ${#verb[@]} -gt 0 || ${#words[@]} -eq 1 || ${words[1]} == -* || ${words[1]} =~ ^[A-Z] ]] || finding "$page" "no verb: $span"
  help=$("$quench" "${verb[@]}" --help 2>&1) || finding "$page" "no help: $span"
  for word in "${words[@]:1}"; do
    [[ $word =~ ^(--[a-z][a-z-]*)(=.*)?$ ]] || continue
    grep -qwF -- "${BASH_REMATCH[1]}" <<< "$help" || finding "$page" "no such option: $span"
  done
}

for page in README.md CONTRIBUTING.md docs/*.md docs/guide/*.md docs/reference/*.md; do
  while IFS= read -r span; do
    if [[ $span =~ ^(build/)?quench\  ]]; then
      check_command "$page" "$span"
    elif [[ $span != *.json && $span =~ ^(--|--no-|~)?(($sections_pattern)\.[a-z_.]+)(=.*|\ .*)?$ ]]; then
      grep -qxE -- "${BASH_REMATCH[2]//./\\.}(\..*)?" <<< "$keys" || finding "$page" "no such key: $span"
    elif [[ $span =~ ^(\./)?((apps|autograd|bench|cmake|configs|core|data|docs|nn|recipes|scripts|tests|train)/[A-Za-z0-9_./*-]*)(\ .*)?$ ]]; then
      [[ ${BASH_REMATCH[2]} == */x.* || ${BASH_REMATCH[2]} == */x_* ]] || compgen -G "${BASH_REMATCH[2]}*" > /dev/null ||
        finding "$page" "no such file: $span"
    fi
  done < <(awk '/^```/ { code = !code; next } !code' "$page" | grep -o '`[^`]*`' | tr -d '`' | sort -u)
done
if [[ $findings -gt 0 ]]; then
  echo "check_mentions.sh: $findings findings"
  exit 1
fi
