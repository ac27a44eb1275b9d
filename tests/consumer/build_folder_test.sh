#!/usr/bin/env bash
# A fresh clone's build folder as scripts/build.sh leaves it, configured but not compiled: its build makes every file that
# `cmake --install` copies, and the configuration of scripts/test.sh afterwards changes no command of it.
# Usage: build_folder_test.sh
set -euo pipefail
source_dir=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clone=$work/quench

fail() { echo "error: $*" >&2; exit 1; }

mkdir "$clone" "$work/bin"
for name in "$source_dir"/* "$source_dir/.deps"; do
  case ${name##*/} in build | runs) ;; *) [ ! -e "$name" ] || ln -s "$name" "$clone/" ;; esac
done
# Ninja that prints the commands of the clone's build instead; CMake's own checks are compiled.
ninja=$(command -v ninja)
cat >"$work/bin/ninja" <<END
#!/bin/sh
[ "\$PWD" = "$clone/build" ] || exec $ninja "\$@"
case \${1:-} in -*) exec $ninja "\$@" ;; *) exec $ninja -t commands "\$@" ;; esac
END
chmod +x "$work/bin/ninja"

# As where there was no ccache; what is missing was installed before this test was built.
PATH="$work/bin:$PATH" "$clone/scripts/build.sh" -DQUENCH_CCACHE=QUENCH_CCACHE-NOTFOUND >"$work/commands.txt" ||
  { cat "$work/commands.txt" >&2; exit 1; }
grep -hoE "\"$clone/build/[^\"]*\"" "$clone"/build/cmake_install.cmake "$clone"/build/apps/cmake_install.cmake |
  grep -v /generated/ | tr -d '"' | sed "s#^$clone/build/##" | grep -E '^(quench|lib[^/]*)$' | sort -u >"$work/installed.txt"
grep -q '^quench$' "$work/installed.txt" && grep -q 'libquench_train\.a$' "$work/installed.txt" ||
  fail "cmake_install.cmake copies $(cat "$work/installed.txt")"
while read -r file; do
  grep -qE -- "(^|[ /])${file//./\.}( |$)" "$work/commands.txt" || fail "scripts/build.sh does not make $file, which cmake --install copies"
done <"$work/installed.txt"

grep -q 'cmake --preset release "${options\[@\]}"' "$source_dir/scripts/test.sh" || fail "scripts/test.sh configures in another way"
cd "$clone"
export PATH=$work/bin:$PATH
cmake --preset release -DQUENCH_CUDA=ON -DQUENCH_TESTS=ON -DQUENCH_BENCH=ON >/dev/null
cmake --build build | sort >"$work/after.txt"
grep -E ' -o [^ ]*\.o ' "$work/commands.txt" | sort >"$work/before.txt"
[ -s "$work/before.txt" ] || fail "no command makes an object"
! grep -q ccache "$work/before.txt" "$work/after.txt" || fail "ccache compiles in a build folder that began without it"
again=$(comm -23 "$work/before.txt" "$work/after.txt" | wc -l)
[ "$again" = 0 ] || fail "scripts/test.sh after scripts/build.sh makes $again objects again, the first by
$(comm -13 "$work/before.txt" "$work/after.txt" | grep -m 1 ' -c ')"
echo "installs $(wc -l <"$work/installed.txt") files that the build makes; $(wc -l <"$work/before.txt") objects stay"
