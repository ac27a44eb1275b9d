#!/usr/bin/env bash
# Builds for every GPU since Ampere and makes two Debian packages in build/: quench_VERSION_ARCHITECTURE.deb with program,
# documents, licence and completion for bash, zsh and fish; libquench-dev_VERSION_ARCHITECTURE.deb with headers, libraries and
# the CMake package for C++ programs. They depend on the libraries that the program was linked to. Prints the GPU code in the
# program. With --release packages and wheels of a tag, for x86-64 and 64-bit ARM, go into dist/release-VERSION with
# SHA256SUMS and manifest.json.
# Usage: scripts/package.sh [--cpu] [--arm64] [CMAKE OPTION ...]
#        scripts/package.sh --release TAG [--cpu]
#   --cpu    leave the GPU part out even where the CUDA toolkit is installed
#   --arm64  cross-compile those of 64-bit ARM, in build-aarch64/
# Install it with: apt-get install ./build/quench_*.deb
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."

options=(-DQUENCH_CUDA=ON -DQUENCH_CUDA_FAT=ON) cpu=() arm64= tag=
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) options=(-DQUENCH_CUDA=OFF) cpu=(--cpu) ;;
    --arm64) arm64=1 ;;
    --release) tag=${2:?"--release needs a tag"}; shift ;;
    *) options+=("$1") ;;
  esac
  shift
done

# Compiles a clone of the tag: nothing that is not committed gets in.
if [ -n "$tag" ]; then
  commit=$(git rev-parse --verify --quiet "refs/tags/$tag^{commit}") || { echo "package.sh: no tag $tag: git tag lists them" >&2; exit 1; }
  version=${tag#v}
  source=$PWD/build/release/$tag target=$PWD/dist/release-$version
  rm -rf "$source" "$target"
  mkdir -p "$target"
  git clone --quiet --branch "$tag" -c advice.detachedHead=false . "$source"
  [ ! -d .deps ] || cp -r .deps "$source/"
  cd "$source"
  ./scripts/package.sh "${cpu[@]}"
  ./scripts/package.sh --arm64 "${cpu[@]}"
  ./scripts/wheel.sh "${cpu[@]}"
  ./scripts/wheel.sh --arm64 "${cpu[@]}"
  cp build/*.deb build-aarch64/*.deb dist/*.whl "$target/"
  cd "$target"
  sha256sum -- * >SHA256SUMS
  python3 - "$version" "$tag" "$commit" <<'PYTHON'
import hashlib, json, pathlib, sys
version, tag, commit = sys.argv[1:]
files = [{"name": path.name, "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
          "machine": "aarch64" if "arm64" in path.name or "aarch64" in path.name else "x86_64"}
         for path in sorted(pathlib.Path(".").iterdir()) if path.name != "SHA256SUMS"]
if not all(version in file["name"] for file in files):
    sys.exit(f"package.sh: files of another version than {version}: {[file['name'] for file in files]}")
pathlib.Path("manifest.json").write_text(json.dumps({"version": version, "tag": tag, "commit": commit, "files": files}, indent=2) + "\n")
PYTHON
  echo "made $target: $(wc -l <SHA256SUMS) files"
  exit
fi

./scripts/setup.sh package
if [ -n "$arm64" ]; then
  ./scripts/setup.sh cross
  build=build-aarch64
  [ -e "$build/CMakeCache.txt" ] || options+=(-DQUENCH_UNITY=ON) # from nothing; a folder that exists keeps its way
  cmake --preset aarch64 -DQUENCH_TESTS=OFF "${options[@]}" >/dev/null
  cmake --build "$build"
  export DEB_HOST_ARCH=arm64 DPKG_ADMINDIR=$PWD/.deps/aarch64/root/var/lib/dpkg
else
  build=build
  ./scripts/build.sh "${options[@]}"
  ./scripts/gpu_code.py build/quench
fi
rm -f "$build"/quench_*.deb "$build"/libquench-dev_*.deb
(cd "$build" && cpack -G DEB)
for package in "$build"/quench_*.deb "$build"/libquench-dev_*.deb; do
  dpkg-deb --field "$package"
  echo "made $package ($(du -h "$package" | cut -f1))"
done
