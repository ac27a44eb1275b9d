#!/usr/bin/env bash
# Style checks that need no build: formatting, direction of includes, file lengths, wording (scripts/language.py),
# the release in the changelog, unfinished marks, machine paths.
# Prints one line a finding and exits 1 when there is any. Runs in seconds; scripts/format.sh mends the formatting.
#   scripts/check.sh [--no-format]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

check_format=1
for argument in "$@"; do
  case "$argument" in
    --no-format) check_format=0 ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' scripts/check.sh; exit 0 ;;
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

# Includes follow the dependency order of folders (layers): a file includes its own layer and layers listed before it.
# data/ includes core/ and data/ only. apps, bench and tests are included by tests only; tests include anything. Each
# folder of core/ops, nn, recipes, distributed and export is a layer of its own, so that no two of them include each
# other; a new one needs its place in the order.
report < <(
  awk '
    BEGIN {
      count = split("core/system core/device core/number core/memory core/tensor core/json core/safetensors " \
                    "core/gguf_types core/ops/quantize core/ops core/ops/kv_cache core/ops/sampling core/ops/basic core/ops/experts core/ops/adapters core/ops/loss core/ops/optimizer core/ops/weights core/self_test " \
                    "core/cpu core/cuda/common core/cuda/sm80 core/cuda/sm90 core/cuda/quantize core/cuda/optimizer core/cuda/gemm core/cuda/cudnn " \
                    "core/cuda/attention core/cuda/layers core/cuda/vocabulary " \
                    "core/cuda/experts core/cuda " \
                    "autograd nn/spec nn/modules nn/attention nn/experts nn/decoder nn/models nn/optim " \
                    "recipes recipes/emulated recipes/float8 recipes/mx recipes/lora recipes/qat " \
                    "distributed/store distributed distributed/experts distributed/context distributed/tensor distributed/fsdp distributed/pipeline distributed/gloo distributed/nccl " \
                    "distributed/launcher " \
                    "data/hub data/s3 data/formats data/arrow data/files data/tokenizer/text data/tokenizer/model data/tokenizer data/jinja data/chat data/text data/sampling data " \
                    "export/mixes export/schemes export/methods export/formats export/kv_cache export/formats/packed_words export/formats/compressed_tensors export/formats/torchao " \
                    "export/formats/gptq export/formats/awq export/formats/bitsandbytes export/formats/fine_grained_float8 export/formats/modelopt export/formats/mxfp4_experts " \
                    "export/formats/gguf/architectures export/formats/gguf export/imatrix export/ptq export/rotate export/table export/budget " \
                    "engine train/checkpoint train/objective train/step train/metrics train/model_source train/config train/remote train/model_folder train/run_folder " \
                    "train/check train/doctor train/session train/record train/run_export train/rollouts train/objectives train/plan train/report train/generation train/probe train/evaluation " \
                    "train/run train/model quench examples apps python bench tests", order, " ")
      for (i = 1; i <= count; ++i) rank[order[i]] = i
    }
    function ordered_within(folder) { return folder ~ /^(core\/ops|nn|recipes|distributed|export)(\/|$)/ }
    function layer_of(path) {  # the longest listed folder that holds it, or ""
      while (sub(/\/[^\/]*$/, "", path)) if (path in rank) return path
      return ""
    }
    FNR == 1 {
      split(FILENAME, parts, "/"); module = parts[1]; layer = layer_of(FILENAME)
      folder = FILENAME; sub(/\/[^\/]*$/, "", folder)
      if (layer == "" || (ordered_within(folder) && layer != folder)) printf "%s: its folder has no place in the dependency order (scripts/check.sh)\n", FILENAME
    }
    module == "tests" || layer == "" { nextfile }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
      target = $0
      sub(/^[^"]*"/, "", target); sub(/".*/, "", target)
      used_layer = layer_of(target)
      if (used_layer == "") next  # a library header in quotes
      split(target, parts, "/"); used = parts[1]
      ok = rank[used_layer] <= rank[layer]
      if (module != used && (used == "tests" || used == "apps" || used == "bench")) ok = 0
      if (module == "data" && used != "data" && used != "core") ok = 0
      if (!ok) printf "%s:%d: %s may not include %s\n", FILENAME, FNR, layer, target
    }' "${sources[@]}"
)

# A model family is data: outside its table (nn/models) and that of GGUF architectures, no code names one, so that none
# can ask for it. Names of tokenizers may equal a model type.
report < <(
  awk '
    function scan(line, rest, name) {
      for (rest = line; match(rest, /"[A-Za-z0-9_]+"/); rest = substr(rest, RSTART + RLENGTH)) {
        name = substr(rest, RSTART + 1, RLENGTH - 2)
        if (name in family && !(FILENAME ~ /tokenizer|gguf\/token_kinds/ && !(name ~ /[A-Z]/)))
          printf "%s:%d: names the model family %s; read its BlockSpec or its entry in nn/models\n", FILENAME, FNR, name
      }
    }
    FILENAME ~ /^nn\/models\// {
      if (match($0, /\.(architecture|model_type|multimodal_architecture) = "[^"]+"/)) {
        name = substr($0, RSTART, RLENGTH); sub(/^[^"]*"/, "", name); sub(/"$/, "", name); family[name] = 1; ++count
      }
      next
    }
    FILENAME ~ /^(tests|examples|export\/formats\/gguf\/architectures)\// { nextfile }
    FNR == 1 && !count { print "scripts/check.sh: no model family found in nn/models"; exit }
    { line = $0; sub(/\/\/.*/, "", line); scan(line) }' nn/models/*.cpp "${sources[@]}"
)

# The newest release of the changelog is that of the headers.
report < <(
  release=$(sed -n 's/^#define QUENCH_VERSION_[A-Z]* \([0-9]*\)$/\1/p' core/system/version.h | paste -sd.)
  newest=$(sed -n 's/^## \([0-9][0-9.]*\).*/\1/p' CHANGELOG.md | head -n 1)
  [ "$release" = "$newest" ] || echo "CHANGELOG.md: its newest release is $newest, core/system/version.h says $release"
)

# At most 40 files of code in a folder.
report < <(printf '%s\n' "${sources[@]}" | sed 's|/[^/]*$||' | sort | uniq -c |
  awk '$1 > 40 { printf "%s: %d files of code; divide it into folders (at most 40)\n", $2, $1 }')

# CLI11 takes seconds to compile: one file includes it.
report < <(grep -nE '#include <CLI/' -- "${sources[@]}" | grep -v '^apps/command\.cpp:' |
  sed 's/^\([^:]*:[0-9]*\):.*/\1: includes CLI11; use apps\/command.h/')

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

# Wording of comments, messages and documentation.
report < <(python3 scripts/language.py --check)
openings=$(python3 scripts/language.py --openings | wc -l)
[ "$openings" = 0 ] || echo "warning: $openings openings of headers and comments lack a noun (scripts/language.py --openings)"

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
