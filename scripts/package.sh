#!/usr/bin/env bash
# Builds for every GPU since Ampere and makes two Debian packages in build/: quench_VERSION_ARCHITECTURE.deb with program,
# documents, licence and completion for bash, zsh and fish; libquench-dev_VERSION_ARCHITECTURE.deb with headers, libraries and
# the CMake package for C++ programs. They depend on the libraries that the program was linked to. Prints the GPU code in the
# program.
# Usage: scripts/package.sh [--cpu] [CMAKE OPTION ...]
#   --cpu   leave the GPU part out even where the CUDA toolkit is installed
# Install it with: apt-get install ./build/quench_*.deb
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

./scripts/setup.sh package
options=(-DQUENCH_CUDA_FAT=ON "$@")
if [ "${1:-}" = --cpu ]; then options=("$@"); fi
./scripts/build.sh "${options[@]}"
./scripts/gpu_code.py build/quench
rm -f build/quench_*.deb build/libquench-dev_*.deb
(cd build && cpack -G DEB)
for package in build/quench_*.deb build/libquench-dev_*.deb; do
  dpkg-deb --field "$package"
  echo "made $package ($(du -h "$package" | cut -f1))"
done
