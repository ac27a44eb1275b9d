#!/usr/bin/env bash
# Two hosts train together, one dies, and the run goes on from its last checkpoint: through `quench run` with numbered
# nodes and with a rendezvous, and under Open MPI's mpirun, which starts the ranks by itself.
#   tests/cluster/two_hosts.sh [--program build/quench] [static|names|rendezvous|cut|mpi ...]
# Hosts are network namespaces of this machine. Needs root, iproute2, and for mpi openmpi-bin.
set -uo pipefail
program=build/quench
[ "${1:-}" = --program ] && { program=$2; shift 2; }
program=$(realpath "$program")
parts=("$@"); [ $# -gt 0 ] || parts=(static names rendezvous cut mpi)
work=$(mktemp -d)
# shellcheck source=tests/cluster/common.sh
. "$(dirname "$0")/common.sh"
trap 'hosts_down; rm -rf "$work"' EXIT

export QUENCH_RDZV_TOKEN="of the test $$"
kSteps=120
make_project $kSteps
hosts_up

start() {  # HOST NAME FLAGS...: the launcher of one host, in the background; its id is in $launcher
  local host=$1 name=$2; shift 2
  local words; mapfile -t words < <(train_words "$name")
  (on_host "$host" "$program" run --nnodes 2 --nproc-per-node 1 "$@" "${words[@]}") >> "$work/$name.$host.log" 2>&1 &
  launcher=$!
}
show() { printf -- '-- %s\n' "$1"; grep -vE '^step|^[[:space:]]*$' "$work/$1" | tail -n "${2:-12}"; }
expect_end() {  # ID NAME HOST
  wait "$1"; local status=$?
  [ $status = 0 ] || { show "$2.$3.log" 40; fail "$2: the launcher on host $3 ended with status $status"; }
}

say "undisturbed: two processes of one host"
mapfile -t words < <(train_words calm)
"$program" run --standalone --nproc-per-node 2 "${words[@]}" > "$work/calm.log" 2>&1 || { cat "$work/calm.log"; fail calm; }

run_static() {
  say "numbered nodes: --master-addr 10.77.0.1, --node-rank 0 and 1"
  local flags=(--master-addr 10.77.0.1 --master-port 29510)
  start b static "${flags[@]}" --node-rank 1; local b=$launcher
  sleep 0.5
  start a static "${flags[@]}" --node-rank 0; local a=$launcher
  expect_end $a static a; expect_end $b static b
  same_weights static calm
  show static.a.log 4
}

# Each host's own name is loopback on it, as on Debian.
run_names() {
  say "names that resolve to 127.0.1.1 on their own host: --rdzv-endpoint quench-a:29411, and MASTER_ADDR=quench-a by hand"
  printf '127.0.0.1 localhost\n127.0.1.1 quench-a\n10.77.0.2 quench-b\n' > "$work/quench-a.hosts"
  printf '127.0.0.1 localhost\n10.77.0.1 quench-a\n127.0.1.1 quench-b\n' > "$work/quench-b.hosts"
  local flags=(--rdzv-endpoint quench-a:29411 --rdzv-id names --rdzv-conf join_timeout=60)
  start a names "${flags[@]}"; local a=$launcher
  start b names "${flags[@]}"; local b=$launcher
  expect_end $a names a; expect_end $b names b
  same_weights names calm
  local rank host words; mapfile -t words < <(train_words by_hand)
  for rank in 1 0; do
    [ $rank = 0 ] && host=a || host=b
    (on_host $host env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=quench-a MASTER_PORT=29412 \
      QUENCH_INIT_TIMEOUT=60 "$program" "${words[@]}") > "$work/by_hand.$host.log" 2>&1 &
    [ $rank = 0 ] && a=$! || b=$!
  done
  expect_end $a by_hand a; expect_end $b by_hand b
  same_weights by_hand calm
  rm "$work"/quench-[ab].hosts
}

# Host b dies in the middle ("kill": with all its processes; "cut": the link alone) and comes back.
run_rendezvous() {  # NAME kill|cut
  say "rendezvous at 10.77.0.1:29400; host b $([ "$2" = kill ] && echo dies || echo 'loses its link for 30 s')"
  local flags=(--rdzv-endpoint 10.77.0.1:29400 --rdzv-id "$1" --max-restarts 3 --restart-backoff 0.1:1
    --rdzv-conf join_timeout=120 --shutdown-timeout 5)
  start a "$1" "${flags[@]}"; local a=$launcher
  start b "$1" "${flags[@]}"; local b=$launcher
  wait_for_steps "$1" 20 60
  if [ "$2" = kill ]; then
    kill_host b
    wait $b; echo "host b: launcher ended with status $?"
  else
    ip -n quench-a link set qa0 down
    wait $b; echo "host b: launcher ended with status $? without the store"
    sleep 5
    ip -n quench-a link set qa0 up
  fi
  local before; before=$(steps_of "$1")
  start b "$1" "${flags[@]}"; b=$launcher
  expect_end $a "$1" a; expect_end $b "$1" b
  [ "$before" -lt $kSteps ] || fail "$1: the run was over before the host died"
  # Rank 0 is on the host that came first.
  cat "$work/$1".[ab].log > "$work/$1.log"
  grep -q "resumed from .*step-" "$work/$1.log" || fail "$1: nothing was resumed"
  same_weights "$1" calm
  verify_checkpoints "$1"
  no_orphans
  grep -hE "resumed from|Root cause|message   :|restarting all" "$work/$1.log" | head -n 8
}

run_mpi() {
  command -v mpirun > /dev/null || fail "no mpirun (openmpi-bin)"
  say "Open MPI: mpirun over both hosts, no launcher of ours; host b dies, the same command again"
  cat > "$work/agent" <<'AGENT'
#!/bin/sh
# Instead of ssh: mpirun calls AGENT HOST COMMAND.
host=$1; shift
[ "$host" = 10.77.0.2 ] && name=quench-b || name=quench-a
exec ip netns exec $name unshare --uts sh -c "hostname $name; $*"
AGENT
  chmod +x "$work/agent"
  local words; mapfile -t words < <(train_words mpi)
  local mpi=(mpirun --allow-run-as-root --host 10.77.0.1,10.77.0.2 -np 2 --mca plm_rsh_agent "$work/agent"
    --mca orte_keep_fqdn_hostnames 1 --mca oob_tcp_if_include 10.77.0.0/24 --bind-to none -x MASTER_ADDR=10.77.0.1
    -x QUENCH_RDZV_TOKEN -x QUENCH_TEST_MARK -x OMP_NUM_THREADS -x PATH "$program" "${words[@]}")
  (on_host a "${mpi[@]}") > "$work/mpi.a.log" 2>&1 &
  local first=$!
  wait_for_steps mpi 20 60
  kill_host b
  wait $first; echo "mpirun: ended with status $?"
  [ "$(steps_of mpi)" -lt $kSteps ] || fail "mpi: the run was over before the host died"
  no_orphans
  verify_checkpoints mpi
  (on_host a "${mpi[@]}") > "$work/mpi.again.log" 2>&1 || { show mpi.again.log 40; fail "mpi: the second run"; }
  grep -h "resumed from" "$work/mpi.again.log" || fail "mpi: nothing was resumed"
  same_weights mpi calm
  no_orphans
}

for part in "${parts[@]}"; do
  case $part in
    static) run_static ;;
    names) run_names ;;
    rendezvous) run_rendezvous rendezvous kill ;;
    cut) run_rendezvous cut cut ;;
    mpi) run_mpi ;;
    *) fail "unknown part '$part'" ;;
  esac
done
say "two_hosts.sh: all parts passed: ${parts[*]}"
