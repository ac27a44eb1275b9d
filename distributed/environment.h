#pragma once
// Which rank of a run this process is, as its launcher says through the environment.
//
// Known, in this order: RANK and its companions (quench run, torchrun, or set by hand), Open MPI's mpirun, srun of
// Slurm, MPICH's mpiexec. Without any of them the process is alone.

#include <functional>
#include <string>

namespace quench::distributed {

struct Environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        // among the ranks of this machine: the GPU that it takes
  int local_world_size = 1;  // of this machine
  std::string master_host;   // where rank 0 is; empty for one rank
  int master_port = 0;
  std::string store;     // host:port of the launcher's store; empty: rank 0 serves one at master_host:master_port
  std::string token;     // the secret of the job
  std::string job;       // its name
  int restart = 0;       // how often the launcher has started the ranks before
  std::string launcher;  // for messages: "RANK and WORLD_SIZE", "Open MPI", ...; empty when alone

  [[nodiscard]] bool is_distributed() const noexcept { return world_size > 1; }
};

using GetVariable = std::function<const char*(const char*)>;

// Throws bad_config naming the variables: half a set, no numbers, a rank outside the world, two launchers that say
// different things, no way to find rank 0.
[[nodiscard]] Environment read_environment();
[[nodiscard]] Environment read_environment(const GetVariable& variable);

// The job's secret from a file, without the line break at its end. Warns where users other than its owner may read it.
// Throws bad_config naming `what` (the flag or variable it comes from) where it is empty.
[[nodiscard]] std::string read_token_file(const std::string& file, std::string_view what);

// The first host of Slurm's compressed list: "n[03-05,9],m1" is "n03". Empty for an empty list.
[[nodiscard]] std::string first_host(std::string_view host_list);
// The entry of Slurm's compressed list of counts: "2(x3),1" is 2, 2, 2, 1. 0 where there is none.
[[nodiscard]] int count_of_node(std::string_view counts, int node);

}  // namespace quench::distributed
