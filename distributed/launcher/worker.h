#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "distributed/store/socket.h"

namespace quench::distributed {

struct WorkerStart {
  std::vector<std::string> command;      // command[0] is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", complete
  int stdout_to = -1;
  int stderr_to = -1;
};

// In its own process group, without stdin, with default signal handlers, and SIGKILL on the launcher's death. Throws
// failed.
[[nodiscard]] pid_t start_worker(const WorkerStart& start);

// fork(2). Throws failed, naming the limit if reached.
[[nodiscard]] pid_t fork_process();

// To the process group; only to the process if it has left its group.
void signal_worker(pid_t worker, int signal) noexcept;

// "signal 11 (Segmentation fault)", "status 7".
[[nodiscard]] std::string describe_status(int wait_status);
// As of a shell: the status, or 128 + signal.
[[nodiscard]] int exit_code(int wait_status);

}  // namespace quench::distributed
