#!/usr/bin/env bash
# run_commands.sh runs what stands in a page, and takes nothing that it cannot run for run.
# Usage: run_commands_test.sh QUENCH
set -uo pipefail
runner=$(dirname "$(realpath "${BASH_SOURCE[0]}")")/run_commands.sh
quench=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect STATUS TEXT [OPTION ...]: the page on standard input, run with the options, ends with the status and prints the text.
expect() {
  local output status
  cat > "$folder/page.md"
  output=$("$runner" --program "$quench" "${@:3}" "$folder/page.md" 2>&1)
  status=$?
  if [[ $status -ne $1 || $output != *"$2"* ]]; then
    printf 'expected status %s and "%s", got %s:\n%s\n' "$1" "$2" "$status" "$output"
    failures=$((failures + 1))
  fi
}

expect 0 "hidden_size" <<'END'
```sh
build/quench config cp tiny here.json
cat here.json
```
END
expect 1 "a command failed" <<'END'
```sh
build/quench config cp no-such-config here.json
echo reached
```
END
expect 0 "not run: needs a GPU" <<'END'
<!-- run: no; needs a GPU -->
```sh
false
```
END
expect 0 "not run: needs other-programs" <<'END'
<!-- run: with other-programs -->
```sh
false
```
END
expect 1 "a command failed" --with other-programs <<'END'
<!-- run: with other-programs -->
```sh
false
```
END
expect 0 "not run: needs other" --with other-programs <<'END'
<!-- run: with other -->
```sh
false
```
END
expect 1 "changes nothing" <<'END'
<!-- run: edit; s/steps=500/steps=5/ -->
```sh
echo steps=50
```
END
expect 0 "edited and prepared" <<'END'
<!-- run: file notes.txt -->
```
edited
```
<!-- run: first; echo prepared > more.txt -->
<!-- run: edit; s/only/and/ -->
```sh
echo $(cat notes.txt) only $(cat more.txt)
```
END
expect 1 "right before a fenced block" <<'END'
<!-- run: no; reason -->
Text.
```sh
true
```
END
expect 1 "stand in fenced blocks marked sh" <<'END'
    build/quench config ls
END
expect 1 "unknown run comment" <<'END'
<!-- run: maybe; reason -->
```sh
true
```
END
exit $((failures > 0))
