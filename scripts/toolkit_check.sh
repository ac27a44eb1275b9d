#!/usr/bin/env bash
# Compiles the CUDA back end and NCCL groups with another CUDA toolkit, from NVIDIA's wheels on PyPI; needs no GPU.
# Usage: scripts/toolkit_check.sh VERSION [ARCHITECTURES]    e.g. 12.4, or 13.5 "90a-real"
#   13.x  the wheels hold a whole compiler: builds all objects with it (default: 90a-real)
#   12.x  the wheels hold headers and ptxas, no nvcc: compiles host and device code with the installed nvcc against these
#         headers, and assembles its PTX, declared as of that toolkit, with that ptxas (default: 80, 89 and 90a, virtual)
# For 12.x this finds missing names in headers and instructions that are too new. It cannot find what the front end and the
# code generator of nvcc 12 itself refuse, it links nothing and runs nothing. Headers of cuDNN and NCCL are the installed
# ones. Writes into build/toolkits/VERSION.
#   QUENCH_CHECK_JOBS  compilers at once (default: all cores)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
version=${1:-}
jobs=${QUENCH_CHECK_JOBS:-$(nproc)}
case $version in
  12.4) ptx=8.4 ;;
  12.5 | 12.6) ptx=8.5 ;;
  12.8) ptx=8.7 ;;
  12.9) ptx=8.8 ;;
  13.[0-9]*) ptx= ;;
  *) sed -n '2,11s/^# \{0,1\}//p' scripts/toolkit_check.sh >&2; exit 2 ;;
esac
folder=$PWD/build/toolkits/$version
wheels=$folder/wheels

if [ ! -e "$folder/installed" ]; then
  rm -rf "$wheels"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --only-binary :all: \
    --target "$wheels" "cuda-toolkit[cccl,cublas,cudart,nvcc,nvrtc,nvtx]==$version.*"
  touch "$folder/installed"
fi
configure() {
  cmake -S . -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DQUENCH_TESTS=OFF -DQUENCH_BENCH=OFF "$@" \
    >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log" >&2; exit 1; }
  grep -E '^-- (CUDA back end|cuDNN attention|NCCL)' "$folder/configure.log"
}

if [ -z "$ptx" ]; then
  toolkit=$wheels/nvidia/cu13
  # Names that CMake's search expects.
  ln -sfn lib "$toolkit/lib64"
  ln -sfn libcudart.so.13 "$toolkit/lib/libcudart.so"
  configure "-DCUDAToolkit_ROOT=$toolkit" "-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" \
    "-DCMAKE_CUDA_ARCHITECTURES=${2:-90a-real}"
  nice ninja -C "$folder/build" -k 0 -j "$jobs" quench_cuda quench_cuda_sm90 \
    $(ninja -C "$folder/build" -t targets all | sed -n 's/^\(quench_nccl\): phony$/\1/p')
  echo "toolkit_check.sh: $("$toolkit/bin/nvcc" --version | sed -n 's/^Cuda compilation tools, //p') compiles everything"
  exit
fi

nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || nvcc=/usr/local/cuda/bin/nvcc
[ -x "$nvcc" ] || { echo "toolkit_check.sh: $version needs an installed nvcc, since its wheels hold none" >&2; exit 1; }
# One folder of headers, as an installed toolkit has; the glue of generated host stubs belongs to the nvcc that writes them.
rm -rf "$folder/include"
mkdir -p "$folder/include"
cp -r "$wheels"/nvidia/*/include/. "$folder/include/"
installed=$("$nvcc" --dryrun -c x.cu 2>&1 | sed -n 's/^#\$ TOP=//p')
cp "$installed/include/crt/host_runtime.h" "$folder/include/crt/"
configure "-DCMAKE_CUDA_COMPILER=$nvcc" "-DCMAKE_CUDA_ARCHITECTURES=${2:-80-virtual;89-virtual;90a-virtual}"
nice python3 scripts/toolkit_check.py --build "$folder/build" --include "$folder/include" --ptx "$ptx" --jobs "$jobs" \
  --ptxas "$wheels/nvidia/cuda_nvcc/bin/ptxas"
