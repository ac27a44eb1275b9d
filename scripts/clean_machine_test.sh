#!/usr/bin/env bash
# What a new user does, on a bare Debian 12 in a folder, from a fresh clone of this tree's HEAD: the demonstration, the
# commands of README and of the getting-started page as they stand, and the Debian package, installed and run on a second
# bare system. As root. The folders are made by, for example:
#   mmdebstrap --variant=minbase --include=ca-certificates,git bookworm ROOT
# Usage: scripts/clean_machine_test.sh ROOT SECOND_ROOT [demo] [pages] [package]   (default: all three, in this order)
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,6s/^# \{0,1\}//p' scripts/clean_machine_test.sh >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "clean_machine_test.sh: chroot needs root" >&2; exit 1; }
root=$(realpath "$1") second=$(realpath "$2")
shift 2
[ $# -gt 0 ] || set -- demo pages package
for folder in "$root" "$second"; do
  [ -x "$folder/usr/bin/apt-get" ] || { echo "clean_machine_test.sh: $folder is no Debian" >&2; exit 2; }
  mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc"
  mountpoint -q "$folder/dev" || mount --rbind --make-rslave /dev "$folder/dev"
done
unmount() {
  for folder in "$root" "$second"; do umount -l "$folder/proc" "$folder/dev" 2>/dev/null || true; done
}
trap unmount EXIT

# inside FOLDER COMMAND: as a user who has just logged in; only the ways to the package sources come along.
inside() {
  local -a kept
  mapfile -t kept < <(env | grep -E '^(https?_proxy|no_proxy|SSL_CERT_FILE)=' || true)
  chroot "$1" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${kept[@]}" \
    bash -euo pipefail -c "cd && $2"
}

if [ ! -e "$root/root/quench" ]; then
  git clone -q --no-hardlinks . "$root/root/quench"
fi
for part in "$@"; do
  started=$SECONDS
  case $part in
    demo) inside "$root" 'cd quench && ./scripts/demo.sh' ;;
    pages) inside "$root" 'cd quench && tests/docs/run_commands.sh --literal README.md docs/guide/getting-started.md' ;;
    package)
      inside "$root" 'cd quench && ./scripts/package.sh --cpu'
      cp "$root"/root/quench/build/quench_*.deb "$second/root/"
      inside "$second" 'apt-get update -qq && apt-get install -y -qq --no-install-recommends ./quench_*.deb >/dev/null'
      inside "$second" 'mkdir -p first && cd first && cat /usr/share/doc/quench/docs/*/*.md > train.txt &&
        quench train shakespeare_char --data.train=train.txt --data.validation=train.txt --training.steps=200 --run.folder=run &&
        quench generate --model run --prompt "The run" --max-new-tokens 40'
      ;;
    *) echo "clean_machine_test.sh: unknown part '$part'" >&2; exit 2 ;;
  esac
  echo "clean machine: $part passed in $((SECONDS - started)) s"
done
