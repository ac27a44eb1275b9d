#pragma once
// One started process of a run.

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "distributed/store/socket.h"

namespace quench::distributed {

struct WorkerStart {
  std::vector<std::string> command;      // the first word is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", all of it
  int stdout_to = -1;                    // descriptors that it gets; -1: the launcher's own
  int stderr_to = -1;
};

// Starts it in a process group of its own, without input, with default signals, to be killed when the launcher dies.
// Throws failed naming the command when it cannot be started.
[[nodiscard]] pid_t start_worker(const WorkerStart& start);

// fork(2). Throws failed, naming the limit where one is reached.
[[nodiscard]] pid_t fork_process();

// Signals a worker and what it has started; its process alone where it has left its group.
void signal_worker(pid_t worker, int signal) noexcept;

// "signal 11 (Segmentation fault)", "status 7".
[[nodiscard]] std::string describe_status(int wait_status);
// What a shell would say: the status, or 128 + the signal.
[[nodiscard]] int exit_code(int wait_status);

}  // namespace quench::distributed
