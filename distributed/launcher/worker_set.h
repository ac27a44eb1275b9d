#pragma once
// Workers of one attempt on one node.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/launcher/failure.h"
#include "distributed/launcher/launch_options.h"
#include "distributed/launcher/output.h"
#include "distributed/launcher/rendezvous.h"
#include "distributed/launcher/supervisor.h"

struct pollfd;

namespace quench::distributed {

class WorkerSet {
 public:
  // Starts the workers, with files in `folder`/attempt_<round>/<local rank>. Throws io for the files, and like
  // Supervisor. The destructor kills what is left of them.
  WorkerSet(const LaunchOptions& options, const std::vector<std::string>& command, const Round& round,
            const std::string& store, const std::filesystem::path& folder);

  // For poll().
  void add_descriptors(std::vector<pollfd>& entries) const;
  void pump();
  // Collects exited workers.
  void reap();
  void signal(int number) noexcept;

  [[nodiscard]] bool all_ended() const;
  [[nodiscard]] bool any_running() const { return !all_ended(); }
  [[nodiscard]] const std::vector<Failure>& failures() const noexcept { return failures_; }
  // Ranks that exited with 0.
  [[nodiscard]] const std::vector<int>& early_ranks() const noexcept { return early_; }
  // Requested exits are no failures from now on.
  void expect_ends() noexcept { expected_ = true; }
  // After success: services that workers put in sessions of their own stay.
  void release() noexcept { supervisor_->release(); }

 private:
  struct Worker {
    bool running = true;
    std::filesystem::path folder;
    WorkerOutput output;
  };
  [[nodiscard]] WorkerStart start_of(const Worker& worker, int local_rank, const std::vector<std::string>& command,
                                     const std::string& store) const;
  void end(std::size_t index, int status);

  const LaunchOptions& options_;
  Round round_;
  std::vector<Worker> workers_;
  std::vector<Failure> failures_;
  std::vector<int> early_;
  bool expected_ = false;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace quench::distributed
