#pragma once
// The latest collective operations of a group: a ring buffer that tells, when something hangs, what every rank was
// doing.

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "distributed/collective.h"

namespace quench::distributed {

class CollectiveLog {
 public:
  using Clock = std::chrono::system_clock;
  using Time = Clock::time_point;

  struct Entry {
    std::uint64_t sequence = 0;    // 0: no entry
    std::uint64_t collective = 0;  // which of the group's operations of all ranks it is, from 1; 0: send or recv
    CollectiveKind kind = CollectiveKind::barrier;
    ReduceOp op = ReduceOp::sum;
    DType dtype = DType::u8;
    std::int64_t elements = 0;
    int peer = -1;  // of send and recv
    std::string label;
    Time enqueued{};
    std::optional<Time> started;
    std::optional<Time> finished;
    [[nodiscard]] std::string describe() const;
  };

  explicit CollectiveLog(std::size_t capacity = 1024) : entries_(capacity) {}

  void enqueued(const Collective& collective);
  void started(std::uint64_t sequence);
  void finished(std::uint64_t sequence);

  // The oldest operation that has been asked for and has not ended.
  [[nodiscard]] std::optional<Entry> oldest_unfinished() const;
  [[nodiscard]] std::optional<Entry> latest_enqueued() const;
  // The n-th operation of all ranks (Entry::collective), while it is kept.
  [[nodiscard]] std::optional<Entry> collective(std::uint64_t number) const;
  // How many operations of all ranks have been asked for, and how many of them have ended.
  [[nodiscard]] std::uint64_t collectives() const;
  [[nodiscard]] std::uint64_t finished_collectives() const;
  [[nodiscard]] std::uint64_t last_enqueued() const;
  [[nodiscard]] std::uint64_t last_finished() const;
  [[nodiscard]] std::vector<Entry> entries() const;  // oldest first
  // [{"sequence", "op", "label", "dtype", "elements", "bytes", "enqueued", "started", "finished"}, ...], times in
  // seconds since 1970.
  [[nodiscard]] Json to_json() const;

 private:
  [[nodiscard]] Entry& at(std::uint64_t sequence) { return entries_[sequence % entries_.size()]; }
  [[nodiscard]] const Entry& at(std::uint64_t sequence) const { return entries_[sequence % entries_.size()]; }

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint64_t last_enqueued_ = 0;
  std::uint64_t collectives_ = 0;
  std::uint64_t last_finished_ = 0;  // operations of a group end in order
};

// Writes it next to the error file of the launcher (TORCHELASTIC_ERROR_FILE), as collectives-GROUP-RANK.json, for
// post-mortem analysis. Nothing without a launcher; never throws.
void write_collective_log(const CollectiveLog& log, std::string_view group, int rank) noexcept;

}  // namespace quench::distributed
