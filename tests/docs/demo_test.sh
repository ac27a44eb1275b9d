#!/usr/bin/env bash
# The demonstration goes on after Ctrl-C, starts anew with other settings and after its end, and its report holds the table
# and the text that it is about.
# Usage: demo_test.sh QUENCH
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
program=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "error: $*" >&2; cat "$work"/*.txt >&2; exit 1; }

# A tree with the program built and nothing to install.
mkdir -p "$work/tree/scripts" "$work/tree/build"
cp "$source_dir/scripts/demo.sh" "$work/tree/scripts/"
printf '#!/bin/sh\n' | tee "$work/tree/scripts/setup.sh" >"$work/tree/scripts/build.sh"
chmod +x "$work"/tree/scripts/*.sh
ln -s "$program" "$work/tree/build/quench"
cat "$source_dir"/docs/guide/*.md | sed 's/<|endoftext|>//' >"$work/text" # documents are paragraphs
demo() { "$work/tree/scripts/demo.sh" --data "$work/text" --steps "$1" --output "$work/demo"; }

export -f demo
export work
setsid env --default-signal=INT bash -c 'demo 8' >"$work/first.txt" 2>&1 &
first=$!
for ((i = 0; i < 1200; ++i)); do
  [ -s "$work/demo/metrics/metrics.jsonl" ] && break
  kill -0 $first 2>/dev/null || break
  sleep 0.1
done
kill -INT -- -$first || fail "it ended by itself"
status=0
wait $first || status=$?
[ $status = 130 ] || fail "after Ctrl-C the demonstration ended with $status"
grep -q 'the same command goes on' "$work/first.txt" || fail "it does not say how to go on"
sleep 0.2
! pgrep -g $first >/dev/null || fail "processes are left behind"
tokenizer=$(stat -c %Y "$work/demo/tokenizer/tokenizer.json")

demo 8 >"$work/second.txt" 2>&1 || fail "it did not go on"
grep -q 'goes on in' "$work/second.txt" || fail "it began anew"
[ "$(stat -c %Y "$work/demo/tokenizer/tokenizer.json")" = "$tokenizer" ] || fail "the tokenizer was trained again"
for text in 'int2-qat' 'int2-ptq' 'The secret of'; do
  grep -q "$text" "$work/demo/report.html" || fail "the report lacks '$text'"
done
grep -qF "$(grep -m 1 int2-ptq "$work/demo/comparison.txt" | cut -c 1-60)" "$work/demo/report.html" ||
  fail "the report lacks the row of int2-ptq"

setsid env --default-signal=INT bash -c 'demo 9' >"$work/third.txt" 2>&1 &
third=$!
for ((i = 0; i < 1200; ++i)); do
  grep -q '== 3/8' "$work/third.txt" && break
  sleep 0.1
done
kill -INT -- -$third || fail "the third ended by itself"
wait $third && fail "Ctrl-C did not end it"
! grep -q 'goes on in' "$work/third.txt" || fail "another number of steps goes on with the old run"
[ ! -e "$work/demo/report.html" ] || fail "the finished demonstration was not replaced"
