#pragma once
// Rank and world size from the launcher's environment variables. Precedence: RANK etc. (quench run, torchrun, or by
// hand), Open MPI, Slurm, MPICH; default: one rank.

#include <functional>
#include <string>

namespace quench::distributed {

struct Environment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // within the node: GPU index
  int local_world_size = 1;
  std::string master_host;  // address of rank 0; empty for one rank
  int master_port = 0;
  std::string store;  // host:port of the launcher's store; empty: served by rank 0 at master_host:master_port
  std::string token;
  std::string job;
  int restart = 0;        // restart count
  int max_restarts = 0;   // limit of the launcher
  bool by_agent = false;  // quench run, torchrun: the processes of a node see the same devices
  std::string launcher;   // for messages: "RANK and WORLD_SIZE", "Open MPI", ...; empty for one rank

  [[nodiscard]] bool is_distributed() const noexcept { return world_size > 1; }
};

// Value of an environment variable, or null.
using GetVariable = std::function<const char*(const char*)>;

// Throws bad_config naming the variables: incomplete or contradictory, non-numeric, rank out of range, unknown address
// of rank 0.
[[nodiscard]] Environment read_environment();
[[nodiscard]] Environment read_environment(const GetVariable& variable);

// Job secret without the final line break. Warns if other users can read the file. Throws bad_config naming `what`
// (flag or variable) if empty.
[[nodiscard]] std::string read_token_file(const std::string& file, std::string_view what);

// First host of a Slurm host list: "n[03-05,9],m1" gives "n03"; empty if none.
[[nodiscard]] std::string first_host(std::string_view host_list);
// Entry `node` of a Slurm count list: "2(x3),1" is 2, 2, 2, 1. 0 if out of range.
[[nodiscard]] int count_of_node(std::string_view counts, int node);

}  // namespace quench::distributed
