#pragma once
// Worker process of a launch: start, end, report.

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

// WorkerStart in the form of execve(2).
class PreparedWorker {
 public:
  struct Start {
    pid_t process = -1;
    bool forked = false;
    int error = 0;  // errno of pipe(2) or fork(2), else of execve(2)
  };

  explicit PreparedWorker(const WorkerStart& start);
  PreparedWorker(PreparedWorker&&) = default;
  // In its own process group, without stdin, with default signal handlers, and SIGKILL on the caller's death. System
  // calls only, for a forked process.
  [[nodiscard]] Start start() const noexcept;

 private:
  [[noreturn]] void become(pid_t parent, int report) const noexcept;

  std::string program_;
  std::vector<std::string> words_;
  std::vector<std::string> variables_;
  std::vector<char*> arguments_;
  std::vector<char*> environment_;
  int stdout_to_;
  int stderr_to_;
};

// fork(2). Throws failed, naming the limit if reached.
[[nodiscard]] pid_t fork_process();
[[nodiscard]] std::string fork_error(int number);

// To the process group; only to the process if it has left its group.
void signal_worker(pid_t worker, int signal) noexcept;

// "signal 11 (Segmentation fault)", "status 7".
[[nodiscard]] std::string describe_status(int wait_status);
// As of a shell: the status, or 128 + signal.
[[nodiscard]] int exit_code(int wait_status);

}  // namespace quench::distributed
