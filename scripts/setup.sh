#!/usr/bin/env bash
# Installs what building and testing need and is missing, from Debian's packages. Where the CUDA toolkit is, also the
# headers of cuDNN's front end, from PyPI into .deps of the source tree.
# Usage: scripts/setup.sh [build|demo|package|test]   (default: test, which includes the others)
set -euo pipefail
what=${1:-test}

# ocl-icd-opencl-dev: oneDNN's CMake package asks for OpenCL's headers, and its Debian package only recommends them.
packages=(g++ cmake ninja-build pkg-config nlohmann-json3-dev libspdlog-dev libfmt-dev libcli11-dev libdnnl-dev ocl-icd-opencl-dev libgloo-dev
  libpcre2-dev libsentencepiece-dev libxxhash-dev libutf8proc-dev zlib1g-dev)
case $what in
  build) ;;
  demo) packages+=(fortunes) ;;
  package) packages+=(dpkg-dev file) ;;
  test)
    packages+=(git fortunes dpkg-dev file ccache libgtest-dev libgmock-dev libbenchmark-dev clang-16 libclang-rt-16-dev clang-format-14)
    ;;
  *) echo "usage: scripts/setup.sh [build|demo|package|test]" >&2; exit 2 ;;
esac

cuda=
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  cuda=1
  python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "error: as root, run: apt-get install -y ${missing[*]}" >&2; exit 1; }
    sudo=sudo
  fi
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

# No dependencies: they are Python's, and only the headers are used.
deps=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.deps
if [ -n "$cuda" ] && [ ! -e "$deps/include/cudnn_frontend.h" ]; then
  echo "installing: nvidia-cudnn-frontend"
  python3 -m pip install --quiet --no-deps --target "$deps" nvidia-cudnn-frontend ||
    echo "warning: without nvidia-cudnn-frontend attention on a GPU runs on slower kernels" >&2
fi
