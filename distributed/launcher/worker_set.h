#pragma once
// Workers of one attempt on one node.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/launcher/failure.h"
#include "distributed/launcher/launch_options.h"
#include "distributed/launcher/orphan_reaper.h"
#include "distributed/launcher/output.h"
#include "distributed/launcher/rendezvous.h"

struct pollfd;

namespace quench::distributed {

class WorkerSet {
 public:
  // Starts the workers, with files in `folder`/attempt_<round>/<local rank>. Throws io for the files, and like
  // start_worker, after killing those started.
  WorkerSet(const LaunchOptions& options, const std::vector<std::string>& command, const Round& round,
            const std::string& store, const std::filesystem::path& folder, OrphanReaper& reaper);
  ~WorkerSet();
  WorkerSet(const WorkerSet&) = delete;
  WorkerSet& operator=(const WorkerSet&) = delete;

  // For poll().
  void add_descriptors(std::vector<pollfd>& entries) const;
  void pump();
  // Collects exited workers, on SIGCHLD.
  void reap();
  void signal(int number) noexcept;

  [[nodiscard]] bool all_ended() const;
  [[nodiscard]] bool any_running() const { return !all_ended(); }
  [[nodiscard]] const std::vector<Failure>& failures() const noexcept { return failures_; }
  // Requested exits are no failures from now on.
  void expect_ends() noexcept { expected_ = true; }

 private:
  struct Worker {
    pid_t process = -1;
    bool running = false;
    int status = 0;
    std::filesystem::path folder;
    WorkerOutput output;
  };
  void start(Worker& worker, int local_rank, const std::vector<std::string>& command, const std::string& store);
  void end(Worker& worker, int local_rank, int status);

  const LaunchOptions& options_;
  Round round_;
  OrphanReaper& reaper_;
  std::vector<Worker> workers_;
  std::vector<Failure> failures_;
  std::vector<int> early_;  // ranks that exited with 0
  bool expected_ = false;
};

}  // namespace quench::distributed
