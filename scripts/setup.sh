#!/usr/bin/env bash
# Installs what building and testing need and is missing, from Debian's packages, and from PyPI into .deps of the source
# tree: Apache Arrow for Parquet and Arrow files (headers and libraries of the pyarrow wheel), XGrammar's C++ sources for answers
# that keep to a JSON schema, where the CUDA toolkit is the headers of cuDNN's front end, and for the Python module nanobind and
# NumPy. `wheel`: where Python is older than 3.12, Debian 13's headers for a module of the stable ABI. `cross` is for the preset
# aarch64: a cross compiler, QEMU's user emulation, and in .deps/aarch64 Debian's arm64 libraries, Apache Arrow, XGrammar, the same
# headers, and where the toolkit is its runtime for ARM hosts.
# Usage: scripts/setup.sh [build|demo|package|python|wheel|test|cross]   (default: test, which includes all but wheel and cross)
set -euo pipefail
what=${1:-test}
case $what in -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;; esac

libraries=(nlohmann-json3-dev libspdlog-dev libfmt-dev libcli11-dev libgloo-dev libpcre2-dev libsentencepiece-dev
  libxxhash-dev libutf8proc-dev zlib1g-dev libzstd-dev libcurl4-openssl-dev libssl-dev libcpp-httplib-dev)
packages=(g++ cmake ninja-build pkg-config "${libraries[@]}")
# GEMMs of x86-64. ocl-icd-opencl-dev: oneDNN's CMake package asks for OpenCL's headers, and its Debian package only
# recommends them.
[ "$(uname -m)" != x86_64 ] || packages+=(libdnnl-dev ocl-icd-opencl-dev)
case $what in
  build) ;;
  demo) packages+=(fortunes) ;;
  package) packages+=(dpkg-dev file) ;;
  python) packages+=(python3-dev python3-pip) ;;
  wheel) packages+=(python3-dev python3-pip python3-venv) ;;
  test)
    packages+=(python3-dev python3-pip git fortunes dpkg-dev file ccache libgtest-dev libgmock-dev libbenchmark-dev nodejs doxygen clang-16 libclang-rt-16-dev clang-format-14)
    ;;
  cross) packages=(cmake ninja-build pkg-config ccache g++-aarch64-linux-gnu qemu-user dpkg-dev file python3-pip python3-venv) ;;
  *) echo "usage: scripts/setup.sh [build|demo|package|python|wheel|test|cross]" >&2; exit 2 ;;
esac

deps=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.deps
arrow=26.0.1  # of pyarrow
xgrammar=0.2.9
cuda=
pip=()  # options of the platform
if [ "$what" = cross ]; then
  deps+=/aarch64
  pip=(--platform manylinux_2_28_aarch64 --python-version 3.11 --implementation cp)
elif command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  cuda=1
fi
if [ ! -e "$deps/arrow/$arrow" ] || [ ! -e "$deps/xgrammar/$xgrammar" ] || [ -n "$cuda" ]; then
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

# Packages of Debian into a folder, by an apt of its own state: two of the -dev packages exclude those of the machine's
# architecture, Debian 12 has no Python 3.13, and neither root nor a foreign architecture is needed.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
apt=$scratch/apt
fetch_packages() { # folder architecture release packages
  local folder=$1 architecture=$2 release=$3 options
  shift 3
  echo "installing into ${folder#"${deps%/.deps*}"/}: $* ($release, $architecture)"
  rm -rf "$apt"
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : >"$apt/status"
  options=(-qq -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
    -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o APT::Sandbox::User= -o Debug::NoLocking=1)
  if [ "$release" != "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" ]; then
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" >"$apt/sources.list"
    options+=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null)
  fi
  apt-get "${options[@]}" update
  if [ $# -eq 1 ]; then
    (cd "$apt/cache/archives" && apt-get "${options[@]}" download "$1")
  else
    apt-get "${options[@]}" install --download-only --no-install-recommends -y "$@" >/dev/null
  fi
  rm -rf "$folder"
  mkdir -p "$folder"
  local package
  for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$folder"; done
  rm -rf "$folder/usr/share/doc" "$folder/usr/share/man" "$folder/usr/share/locale"
}

# A list of the packages in the folder for dpkg-shlibdeps (DPKG_ADMINDIR), which finds files by their real paths.
record_packages() { # folder architecture
  local data=$1/var/lib/dpkg package name
  mkdir -p "$data/info" "$data/updates"
  printf '%s\n' "$2" >"$data/arch"
  echo 1 >"$data/info/format"  # names with architectures
  for package in "$apt"/cache/archives/*.deb; do
    name=$(dpkg-deb -f "$package" Package)
    [ "$(dpkg-deb -f "$package" Multi-Arch)" != same ] || name+=:$2
    dpkg-deb -e "$package" "$apt/control"
    { sed '/^ *$/d; /^Package:/a Status: install ok installed' "$apt/control/control"; echo; } >>"$data/status"
    for part in shlibs symbols; do
      [ ! -e "$apt/control/$part" ] || cp "$apt/control/$part" "$data/info/$name.$part"
    done
    dpkg-deb -c "$package" | sed -E "s|^.{10} .* \./([^ ]*).*|$1/\1|; s|/$||" >"$data/info/$name.list"
    rm -rf "$apt/control"
  done
}

if [ "$what" = cross ]; then
  root=$deps/root list="${libraries[*]} libstdc++-12-dev libgtest-dev libgmock-dev"
  if [ "$(cat "$root/packages" 2>/dev/null)" != "$list" ] || [ ! -e "$root/var/lib/dpkg/status" ]; then
    # shellcheck disable=SC2086
    fetch_packages "$root" arm64 bookworm $list
    record_packages "$root" arm64
    # Absolute links would lead out of the folder.
    find "$root/usr/lib" "$root/lib" -type l -lname '/*' -printf '%P %l %H/%P\n' | while read -r _ target link; do
      ln -srfn "$root$target" "$link"
    done
    # Gloo's CMake package names its library by an absolute path.
    find "$root/usr" -name '*Targets-*.cmake' -exec sed -i 's|"/usr/|"${_IMPORT_PREFIX}/|' {} +
    echo "$list" >"$root/packages"
  fi
fi

# The stable ABI is that of 3.12; only headers are used.
if [ "$what" = cross ]; then
  machine=arm64
elif [ "$what" = wheel ] && ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 12))'; then
  machine=$(dpkg --print-architecture)
else
  machine=
fi
if [ -n "$machine" ] && [ ! -e "$deps/python-headers/usr/include/python3.13/Python.h" ]; then
  fetch_packages "$deps/python-headers" "$machine" trixie libpython3.13-dev
fi

# An interpreter that runs the module's tests under QEMU.
if [ "$what" = cross ] && [ ! -e "$deps/python/usr/bin/python3.13" ]; then
  fetch_packages "$deps/python" arm64 trixie python3.13 python3-numpy
  ln -sfn usr/lib "$deps/python/lib"
fi

# A CUDA toolkit that compiles for ARM hosts (sbsa): the one of this machine, whose nvcc looks for its parts next to itself, with
# the runtime of NVIDIA's wheel of the same release.
if [ "$what" = cross ] && nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null); then
  nvcc=$(realpath "$nvcc")
  toolkit=${nvcc%/bin/nvcc} release=$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  headers=$(realpath "$toolkit/include")
  if [ "$(cat "$deps/cuda/release" 2>/dev/null)" != "$release" ]; then
    echo "installing into .deps/aarch64/cuda: nvidia-cuda-runtime $release"
    rm -rf "$deps/cuda"
    mkdir -p "$deps/cuda/bin" "$deps/cuda/targets/sbsa-linux/lib" "$scratch/runtime"
    cp "$nvcc" "$toolkit/bin/nvcc.profile" "$deps/cuda/bin/"
    for part in "$toolkit"/bin/*; do [ -e "$deps/cuda/bin/${part##*/}" ] || ln -s "$part" "$deps/cuda/bin/"; done
    ln -s "$toolkit/nvvm" "$deps/cuda/nvvm"
    ln -s "$headers" "$deps/cuda/targets/sbsa-linux/include"
    ln -s targets/sbsa-linux/include targets/sbsa-linux/lib "$deps/cuda/"
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --platform manylinux2014_aarch64 \
      --python-version 3.12 --dest "$scratch/runtime" "nvidia-cuda-runtime==$release.*" &&
      (cd "$scratch/runtime" && python3 -m zipfile -e nvidia_cuda_runtime-*.whl .); then
      cp "$scratch"/runtime/nvidia/cu*/lib/libcuda* "$deps/cuda/targets/sbsa-linux/lib/"
      ln -s libcudart.so."${release%%.*}" "$deps/cuda/targets/sbsa-linux/lib/libcudart.so"
      echo "$release" >"$deps/cuda/release"
    else
      rm -rf "$deps/cuda"
      echo "warning: no CUDA runtime of release $release for ARM hosts: GPU code is left out" >&2
    fi
  fi
fi

# Two of the wheel's libraries, which need nothing of Python; the file named like the version comes last.
if [ ! -e "$deps/arrow/$arrow" ]; then
  echo "installing: Apache Arrow $arrow (pyarrow)"
  wheel=$scratch/arrow
  mkdir "$wheel"
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: "${pip[@]}" --dest "$wheel" \
    "pyarrow==$arrow" && (cd "$wheel" && python3 -m zipfile -e pyarrow-*.whl .); then
    rm -rf "$deps/arrow"
    mkdir -p "$deps/arrow/lib"
    cp -r "$wheel/pyarrow/include" "$deps/arrow/"
    cp "$wheel"/pyarrow/libarrow.so.* "$wheel"/pyarrow/libparquet.so.* "$deps/arrow/lib/"
    find "$wheel" -path '*pyarrow-*/*' \( -name 'LICENSE*' -o -name 'NOTICE*' \) -exec cp {} "$deps/arrow/" \;
    touch "$deps/arrow/$arrow"
  else
    echo "warning: without pyarrow the program reads no Parquet and Arrow files" >&2
  fi
fi

# C++ sources of the source distribution, which need nothing of Python, and the two header libraries that it carries.
if [ ! -e "$deps/xgrammar/$xgrammar" ]; then
  echo "installing: XGrammar $xgrammar (C++ sources)"
  sources=$scratch/xgrammar
  mkdir "$sources"
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary xgrammar --dest "$sources" \
    "xgrammar==$xgrammar" && tar -xzf "$sources/xgrammar-$xgrammar.tar.gz" -C "$sources" --strip-components=1; then
    rm -rf "$deps/xgrammar"
    mkdir -p "$deps/xgrammar/include"
    cp -r "$sources/cpp" "$sources/LICENSE" "$sources/NOTICE" "$deps/xgrammar/"
    cp -r "$sources/include/xgrammar" "$sources/3rdparty/dlpack/include/dlpack" "$sources/3rdparty/picojson/picojson.h" \
      "$deps/xgrammar/include/"
    rm -rf "$deps/xgrammar/cpp/tvm_ffi"
    touch "$deps/xgrammar/$xgrammar"
  else
    echo "warning: without xgrammar no answer is kept to a JSON schema (response_format, --json-schema)" >&2
  fi
fi

# No dependencies: they are Python's, and only the headers are used.
if [ -n "$cuda" ] && [ ! -e "$deps/include/cudnn_frontend.h" ]; then
  echo "installing: nvidia-cudnn-frontend"
  python3 -m pip install --quiet --no-deps --target "$deps" nvidia-cudnn-frontend ||
    echo "warning: without nvidia-cudnn-frontend attention on a GPU runs on slower kernels" >&2
fi

if [[ $what == python || $what == test ]] && [ ! -e "$deps/python/nanobind" ]; then
  echo "installing: nanobind, NumPy"
  python3 -m pip install --quiet --disable-pip-version-check --target "$deps/python" "nanobind>=2.4" numpy
fi
