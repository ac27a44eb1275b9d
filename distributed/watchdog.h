#pragma once
// Watchdog: propagates failures, so that all ranks abort with the same message.
//
//   Lost rank: the store sets the alarm as the last will of its connection; after a delay, in which operations may fail
//   with a better message, the other ranks' groups are aborted. A rank that fails while others wait sets the alarm.
//   Timeout: the waiting rank sets the alarm. Every rank, even with a blocked main thread, writes its collective log
//   and publishes its progress, from which all derive the late rank, and abort.
//
// With `end_process`, a process still alive some time after the abort exits with kTimeoutStatus. Store keys, under the
// world's prefix: "alarm": first failure; "state/RANK": progress.

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
  std::chrono::milliseconds settle{1'000};   // from a rank's exit to the abort
  std::chrono::milliseconds answer{5'000};   // for ranks to publish their progress
  std::chrono::milliseconds ending{30'000};  // from the abort to the forced exit
  bool end_process = false;                  // forced exit
};

class Watchdog {
 public:
  Watchdog(std::unique_ptr<Store> store, std::string prefix, int rank, int size, const WatchdogOptions& options = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Alarm key and values: rank has exited; run complete.
  [[nodiscard]] static std::string key(const std::string& prefix) { return prefix + "alarm"; }
  [[nodiscard]] static std::string ended(int rank, const std::string& what);
  [[nodiscard]] static std::string over();

  // For messages: "process 17 on node3".
  void set_members(std::vector<std::string> members);

  // Groups to abort. `remove` returns when the group is no longer in use.
  void add(ProcessGroup& group);
  void remove(ProcessGroup& group) noexcept;

  // Timeout of operation `collective` of `group` (index over all ranks; 0: point-to-point). Returns `message` with the
  // joint diagnosis; all ranks abort. Call from a thread of the registered group.
  [[nodiscard]] std::string report_late(const ProcessGroup& group, std::uint64_t collective,
                                        const std::string& message);

  // Local failure while other ranks wait in an operation: all ranks abort.
  void give_up(const std::string& reason) noexcept;

  // Throws CommunicationError after the loss of a rank.
  void check() const;
  // Ignores later alarms.
  void stop() noexcept;

 private:
  void run();
  void handle(const Json& alarm);
  // Writes all groups' collective logs; returns their progress.
  [[nodiscard]] Json write_state();
  [[nodiscard]] std::string diagnose(const Json& alarm);
  void abort_groups(AbortCause cause, const std::string& reason);
  void end_process_in_time();
  [[nodiscard]] bool pause(std::chrono::milliseconds time);

  std::unique_ptr<Store> store_;
  std::string prefix_;
  int rank_;
  WatchdogOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::string> members_;
  std::condition_variable changed_;
  std::vector<ProcessGroup*> groups_;
  std::string lost_;                      // empty: none
  std::optional<std::string> diagnosis_;  // report on a late operation
  bool stopping_ = false;
  std::thread thread_;
};

// Waits for a key; throws if `watchdog` (may be null) has seen a lost rank. Nothing on a timeout.
[[nodiscard]] std::optional<std::string> wait_watched(Store& store, const std::string& key,
                                                      std::chrono::milliseconds timeout, const Watchdog* watchdog);

}  // namespace quench::distributed
