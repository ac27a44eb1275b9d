#pragma once
// Watches the ranks of a world, so that none waits for one that will not come: what goes wrong on one rank becomes
// known to all, which then give up together with the same message.
//
//   A rank ends early, however it ends: the store sets the alarm as the will of its connection. After a moment, in
//   which what is under way may end with a better message, the others' groups are aborted. A rank that fails where the
//   others wait for it, and lives, sets the alarm itself.
//   An operation is not done in time: the rank that waits sets the alarm. Every rank, also one whose main thread hangs,
//   writes the latest operations of its groups (write_collective_log) and tells the others how far it is; from that all
//   of them derive which rank is late, and abort.
//
// A process that has not ended some time after its groups were aborted hangs, and is ended (kTimeoutStatus).
//
// Keys in the store, after the world's prefix: "alarm" is the first thing that went wrong, "state/RANK" how far a rank
// is.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/json/json.h"
#include "distributed/communication_error.h"
#include "distributed/store/store.h"

namespace quench::distributed {

class ProcessGroup;

struct WatchdogOptions {
  std::chrono::milliseconds settle{1'000};   // from a rank's end to the abort
  std::chrono::milliseconds answer{5'000};   // within which ranks say how far they are
  std::chrono::milliseconds ending{30'000};  // from the abort to the end of the process
};

class Watchdog {
 public:
  // Over a connection of its own.
  Watchdog(std::unique_ptr<Store> store, std::string prefix, int rank, int size, const WatchdogOptions& options = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // The alarm's key, and its values: rank `rank` has ended; the run is over.
  [[nodiscard]] static std::string key(const std::string& prefix) { return prefix + "alarm"; }
  [[nodiscard]] static std::string ended(int rank, const std::string& what);
  [[nodiscard]] static std::string over();

  // What messages call the ranks: "process 17 on node3".
  void set_members(std::vector<std::string> members);

  // Groups that are aborted on an alarm. `remove` returns when nothing of the group is in use.
  void add(ProcessGroup& group);
  void remove(ProcessGroup& group) noexcept;

  // An operation of `group`, the n-th of all its ranks (0: of two), is not done in time. Returns `message` with what
  // the ranks together know about it; they abort. From a thread of the group, which has not been removed meanwhile.
  [[nodiscard]] std::string report_late(const ProcessGroup& group, std::uint64_t collective,
                                        const std::string& message);

  // This rank fails with this reason while the others wait for it in an operation: they abort, and so does it.
  void give_up(const std::string& reason) noexcept;

  // Throws CommunicationError once a rank has ended: for waits that no group knows of.
  void check() const;
  // No alarm counts any more. Called by the world before it ends.
  void stop() noexcept;

 private:
  void run();
  void handle(const Json& alarm);
  // The latest operations of all groups, in addition to the logs; their progress.
  [[nodiscard]] Json write_state();
  [[nodiscard]] std::string diagnose(const Json& alarm);
  void abort_groups(AbortCause cause, const std::string& reason);
  void end_process_in_time();
  // False when stopped.
  [[nodiscard]] bool pause(std::chrono::milliseconds time);

  std::unique_ptr<Store> store_;
  std::string prefix_;
  int rank_;
  WatchdogOptions options_;
  mutable std::mutex mutex_;  // of all below
  std::vector<std::string> members_;
  std::condition_variable changed_;
  std::vector<ProcessGroup*> groups_;
  std::string lost_;                      // empty: none
  std::optional<std::string> diagnosis_;  // of an operation that is late
  bool stopping_ = false;
  std::thread thread_;
};

// A value from the store, once it is there; gives up early when `watchdog`, which may be null, knows of a rank's end.
// Nothing when the time is over.
[[nodiscard]] std::optional<std::string> wait_watched(Store& store, const std::string& key,
                                                      std::chrono::milliseconds timeout, const Watchdog* watchdog);

}  // namespace quench::distributed
