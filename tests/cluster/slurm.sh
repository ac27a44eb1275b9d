#!/usr/bin/env bash
# The batch script of docs/cluster under a real Slurm: trains on two nodes, is cancelled as a preemption would, and the same
# command goes on from the saved step.
#   SLURM_CONF=FILE tests/cluster/slurm.sh [--program build/quench]
# Needs a Slurm with two nodes of one core or more; nodes look each other up by name (/etc/hosts).
set -uo pipefail
program=build/quench
[ "${1:-}" = --program ] && { program=$2; shift 2; }
program=$(realpath "$program")
folder=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
# shellcheck source=tests/cluster/common.sh
. "$folder/common.sh"
trap 'scancel --signal=KILL "${job:-}" 2>/dev/null; rm -rf "$work"' EXIT
command -v sbatch > /dev/null || fail "no sbatch (slurm-wlm)"
[ "$(sinfo -h -o %D 2>/dev/null)" -ge 2 ] 2>/dev/null || fail "no Slurm with two nodes answers (SLURM_CONF)"

make_project 400
say "undisturbed, without Slurm"
mapfile -t words < <(train_words calm)
"$program" run --standalone --nproc-per-node 2 "${words[@]}" > "$work/calm.log" 2>&1 || { cat "$work/calm.log"; fail calm; }

mapfile -t words < <(train_words slurm)
submit() {
  job=$(PATH=$(dirname "$program"):$PATH sbatch --parsable --nodes 2 --ntasks-per-node 1 --gpus-per-node 0 --cpus-per-task 1 \
    --time 10 --chdir "$work" --output "$work/job-%j.log" "$folder/../../docs/cluster/quench.sbatch" "${words[@]:1}") ||
    fail "sbatch"
  echo "job $job"
}
state() { scontrol show job "$job" -o 2>/dev/null | grep -o 'JobState=[A-Z_]*\|ExitCode=[0-9:]*' | tr '\n' ' '; }
wait_for_end() {
  for _ in $(seq 600); do
    case $(state) in *PENDING* | *RUNNING* | *COMPLETING* | *CONFIGURING*) sleep 0.2 ;; *) return ;; esac
  done
  fail "job $job does not end: $(state)"
}

say "sbatch docs/cluster/quench.sbatch on two nodes"
submit
wait_for_steps slurm 20 120
squeue -h -j "$job" -o "job %i on %D nodes: %N, %T"
say "SIGTERM to the ranks, as 120 s before the end of the job's time or at a preemption"
scancel --signal=TERM "$job"
wait_for_end
echo "job $job: $(state)"
before=$(steps_of slurm)
[ "$before" -lt 400 ] || fail "the run was over before the signal"
verify_checkpoints slurm
say "the same command again"
submit
wait_for_end
echo "job $job: $(state)"
grep -h "resumed from" "$work/job-$job.log" || { cat "$work/job-$job.log"; fail "nothing was resumed"; }
[ "$(steps_of slurm)" = 400 ] || { tail "$work/job-$job.log"; fail "the run has $(steps_of slurm) steps"; }
same_weights slurm calm
say "slurm.sh: passed; weights equal those of the run without Slurm"
