#pragma once
// Process between the launcher and its workers: their parent and, by PR_SET_CHILD_SUBREAPER, that of every process
// whose parent ends, also in sessions of their own. It kills them all when the launcher's end of a pipe closes.

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "distributed/launcher/worker.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

class Supervisor {
 public:
  struct Ended {
    std::size_t worker;
    int status;  // as of waitpid
  };

  // Starts the workers. Throws bad_config for a program that cannot be executed, else failed; no process is left then.
  explicit Supervisor(const std::vector<WorkerStart>& workers);
  // Kills all that is left, and waits for its end (10 s at most for processes that cannot be killed).
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  [[nodiscard]] pid_t process(std::size_t worker) const { return processes_[worker]; }
  // For poll(): readable after a worker's end.
  [[nodiscard]] int descriptor() const noexcept { return reports_.descriptor(); }
  // Next worker that has ended, with what its process group still held killed. Without waiting. If the supervisor was
  // killed, so were the workers.
  [[nodiscard]] std::optional<Ended> take();
  // Leaves alone what runs outside of the workers' process groups. Only after all workers have ended.
  void release() noexcept;

 private:
  void read_starts(const std::vector<WorkerStart>& workers);
  void end() noexcept;

  Socket reports_;
  Socket control_;
  pid_t supervisor_ = -1;
  std::vector<pid_t> processes_;
  std::vector<bool> running_;
};

}  // namespace quench::distributed
