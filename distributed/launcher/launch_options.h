#pragma once
// What the launcher is asked to do, in torchrun's terms.

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/store/socket.h"

namespace quench::distributed {

inline constexpr int kDefaultMasterPort = 29500;
inline constexpr int kDefaultRendezvousPort = 29400;

// As they stand on the command line; empty texts were not given.
struct LaunchFlags {
  std::string nnodes = "1";
  std::string nproc_per_node = "1";
  int node_rank = -1;
  std::string master_addr;
  int master_port = 0;
  std::string rdzv_backend;
  std::string rdzv_endpoint;
  std::string rdzv_id;
  std::string rdzv_conf;
  std::string rdzv_token_file;
  bool standalone = false;
  int max_restarts = 0;
  std::string restart_backoff = "1:60";
  double monitor_interval = 0.1;
  double shutdown_timeout = 30;
  std::string role = "default";
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string local_ranks_filter;
};

// Where the output of a worker goes.
enum Streams : unsigned { kNoStream = 0, kStdout = 1, kStderr = 2 };

struct LaunchOptions {
  int nodes = 1;
  int workers = 1;     // of this node
  int node_rank = -1;  // -1: in the order in which nodes arrive
  Endpoint endpoint;   // of the rendezvous; no host: this node alone, on loopback
  std::string job;     // its id
  std::string token;
  int master_port = 0;  // of MASTER_PORT; 0: a free one
  std::chrono::milliseconds join_timeout{600'000};
  int max_restarts = 0;
  std::chrono::milliseconds first_backoff{1'000};  // before the first restart; twice as long before each further one
  std::chrono::milliseconds most_backoff{60'000};  // at most so long; an attempt that ran longer starts anew
  std::chrono::milliseconds monitor_interval{100};
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::string role = "default";
  std::filesystem::path log_dir;    // empty: a temporary one, kept if something fails
  std::vector<unsigned> redirects;  // Streams of each worker that go to files
  std::vector<unsigned> tee;        // Streams of each worker that go to files and, with a prefix, to the console
  std::vector<bool> on_console;     // which workers' other streams go to the console

  [[nodiscard]] bool alone() const noexcept { return endpoint.host.empty(); }
};

// Throws bad_config naming the flag, its value and what it takes.
[[nodiscard]] LaunchOptions read_launch_flags(const LaunchFlags& flags);

}  // namespace quench::distributed
