#!/usr/bin/env bash
# API reference as HTML, by Doxygen, of the public headers: those that quench/*.h include directly. Fails if a class,
# struct, enumeration, free function, constant or macro has no comment, or if Doxygen warns of anything else. Members,
# and functions named to_string, need none.
#   scripts/api_docs.sh [OUT]     default: build/api; the first page is OUT/html/index.html
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case "${1:-}" in
  -h | --help) sed -n '2,5s/^# \{0,1\}//p' scripts/api_docs.sh; exit 0 ;;
esac
out=${1:-build/api}
command -v doxygen >/dev/null || { echo "api_docs.sh: doxygen is not installed (apt-get install doxygen)" >&2; exit 1; }
mkdir -p "$out"

mapfile -t headers < <(sed -n 's/^#include "\(.*\)"/\1/p' quench/*.h | grep -v '^quench/' | sort -u)
doxygen - >/dev/null <<END
PROJECT_NAME = Quench
PROJECT_NUMBER = $(sed -n 's/^#define QUENCH_VERSION_[A-Z]* \([0-9]*\)$/\1/p' core/system/version.h | paste -sd.)
PROJECT_BRIEF = "C++ libraries that train and fine-tune Llama-family language models"
OUTPUT_DIRECTORY = $out
INPUT = ${headers[*]} $(echo quench/*.h)
INPUT_FILTER = "python3 scripts/doxygen_filter.py"
FULL_PATH_NAMES = YES
STRIP_FROM_PATH = $PWD
JAVADOC_AUTOBRIEF = YES
MARKDOWN_SUPPORT = NO
HIDE_UNDOC_MEMBERS = NO
HIDE_UNDOC_CLASSES = NO
EXTRACT_STATIC = YES
EXCLUDE_SYMBOLS = *detail* *Registered_*
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = QUENCH_HOST_DEVICE= constinit= __extension__=
SORT_MEMBER_DOCS = NO
SHOW_GROUPED_MEMB_INC = YES
GENERATE_LATEX = NO
VERBATIM_HEADERS = NO
HAVE_DOT = NO
INCLUDE_GRAPH = NO
INCLUDED_BY_GRAPH = NO
HTML_TIMESTAMP = NO
WARN_IF_UNDOCUMENTED = YES
WARN_IF_DOC_ERROR = YES
WARN_NO_PARAMDOC = NO
WARN_LOGFILE = $out/warnings.txt
QUIET = YES
END

findings=$(sed "s|$PWD/||" "$out/warnings.txt" | sort -u |
  grep -vE 'warning: Member .* of (class|struct|enumeration) |Compound quench::(DType|ElementFormat)Of< |warning: Member to_string\(' || true)
if [ -n "$findings" ]; then
  printf '%s\n' "$findings" >&2
  echo "api_docs.sh: $(printf '%s\n' "$findings" | wc -l) findings" >&2
  exit 1
fi
echo "api_docs.sh: $out/html/index.html, ${#headers[@]} headers"
