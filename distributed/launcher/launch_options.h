#pragma once
// Launcher options, in torchrun's terms.

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/store/socket.h"

namespace quench::distributed {

inline constexpr int kDefaultMasterPort = 29500;
inline constexpr int kDefaultRendezvousPort = 29400;

// Raw command line; empty if not given.
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

// Bit mask.
enum Streams : unsigned { kNoStream = 0, kStdout = 1, kStderr = 2 };

struct LaunchOptions {
  int nodes = 1;
  int workers = 1;
  int node_rank = -1;  // -1: order of arrival
  Endpoint endpoint;   // address of the rendezvous; empty host: one node, loopback
  std::string job;
  std::string token;
  int master_port = 0;  // 0: a free port
  std::chrono::milliseconds join_timeout{600'000};
  int max_restarts = 0;
  std::chrono::milliseconds first_backoff{1'000};  // doubled for each further restart
  std::chrono::milliseconds most_backoff{60'000};  // limit; reset after an attempt that ran longer
  std::chrono::milliseconds monitor_interval{100};
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::string role = "default";
  std::filesystem::path log_dir;    // empty: temporary, kept on failure
  std::vector<unsigned> redirects;  // per worker: Streams redirected to files
  std::vector<unsigned> tee;        // per worker: Streams to files and, with a prefix, to the console
  std::vector<bool> on_console;     // workers whose other streams use the console

  [[nodiscard]] bool alone() const noexcept { return endpoint.host.empty(); }
};

// Throws bad_config naming the flag, its value and the accepted values.
[[nodiscard]] LaunchOptions read_launch_flags(const LaunchFlags& flags);

}  // namespace quench::distributed
