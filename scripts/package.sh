#!/usr/bin/env bash
# Builds the program for every GPU since Ampere and makes a Debian package of it, build/quench_VERSION_ARCHITECTURE.deb:
# program, documents, licence, completion for bash, zsh and fish. It depends on the libraries that the program was linked
# to. Prints the GPU code that it holds.
# Usage: scripts/package.sh [--cpu] [CMAKE OPTION ...]
#   --cpu   leave the GPU part out even where the CUDA toolkit is installed
# Install it with: apt-get install ./build/quench_*.deb
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

./scripts/setup.sh package
options=(-DQUENCH_CUDA_FAT=ON "$@")
if [ "${1:-}" = --cpu ]; then options=("$@"); fi
./scripts/build.sh "${options[@]}"
./scripts/gpu_code.py build/quench
rm -f build/quench_*.deb
(cd build && cpack -G DEB)
package=$(ls build/quench_*.deb)
dpkg-deb --info "$package" | sed -n '/^ Package:/,$p'
echo "made $package"
