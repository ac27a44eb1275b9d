#!/usr/bin/env bash
# The libraries as a C++ program uses them: installed into a prefix, found by CMake or pkg-config.
# Usage: consumer_test.sh install BUILD_DIR WORK        installs component `development` into WORK/prefix
#        consumer_test.sh example NAME QUENCH WORK      configures, builds and runs examples/NAME (cases/NAME.sh)
#        consumer_test.sh static|pkg-config|refusals WORK   the project in project/, in other ways
#   QUENCH_CMAKE_ARGS  further arguments for CMake of the consumer
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source_dir=$(cd "$here/../.." && pwd)

fail() { echo "error: $*" >&2; exit 1; }

# build SOURCE NAME [CMAKE ARGUMENT ...]: into WORK/NAME
build() {
  local source=$1 name=$2
  shift 2
  rm -rf "${work:?}/$name"
  # shellcheck disable=SC2086  # several arguments in one variable
  cmake -S "$source" -B "$work/$name" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" ${QUENCH_CMAKE_ARGS:-} "$@" >"$work/$name.log" 2>&1 ||
    { cat "$work/$name.log" >&2; return 1; }
  cmake --build "$work/$name" >>"$work/$name.log" 2>&1 || { cat "$work/$name.log" >&2; return 1; }
}

case $1 in
  install)
    build_dir=$2 work=$3
    rm -rf "${work:?}"
    mkdir -p "$work"
    cmake --install "$build_dir" --prefix "$work/prefix" --component development >"$work/install.log" ||
      { cat "$work/install.log" >&2; exit 1; }
    ! grep -rn '#include "\(core\|autograd\|nn\|recipes\|data\|distributed\|export\|train\)/' "$work/prefix/include" ||
      fail "installed headers include each other by paths of the source tree"
    ;;
  example)
    name=$2 quench=$3 work=$4
    build "$source_dir/examples/$name" "$name"
    export quench source_dir
    folder=$work/$name-run
    rm -rf "$folder"
    mkdir -p "$folder"
    (cd "$folder" && programs=$work/$name bash -euo pipefail "$here/cases/$name.sh")
    ;;
  static)
    work=$2
    minor_release=$(sed -n 's/^#define QUENCH_VERSION_M[AI][JN]OR \([0-9]*\)$/\1/p' "$source_dir/core/system/version.h" | paste -sd.)
    build "$here/project" static -DQuench_USE_STATIC_LIBS=ON -DWANTED_VERSION="$minor_release"
    "$work/static/consumer"
    ! ldd "$work/static/consumer" | grep libquench || fail "a static program needs shared libraries"
    ;;
  pkg-config)
    work=$2
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name quench.pc)")
    # shellcheck disable=SC2046  # flags
    g++ "$here/project/consumer.cpp" -o "$work/by-pkg-config" $(pkg-config --cflags --libs quench)
    LD_LIBRARY_PATH=$(pkg-config --variable=libdir quench) "$work/by-pkg-config"
    ;;
  refusals)
    work=$2
    ! build "$here/project" newer -DWANTED_VERSION=9.0 2>"$work/newer.txt" || fail "version 9.0 was found"
    grep -q 'with requested version "9.0"' "$work/newer.txt"
    ! build "$here/project" part -DWANTED_COMPONENT=vision 2>"$work/part.txt" || fail "component vision was found"
    grep -q vision "$work/part.txt"
    ;;
  *) sed -n '3,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
