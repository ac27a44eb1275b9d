#pragma once
// Ring buffer of a group's latest collective operations (flight recorder), for the diagnosis of hangs.

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
    std::uint64_t collective = 0;  // 1-based index among operations of all ranks; 0: send or recv
    CollectiveKind kind = CollectiveKind::barrier;
    ReduceOp op = ReduceOp::sum;
    DType dtype = DType::u8;
    std::int64_t elements = 0;
    int peer = -1;
    std::string label;
    Time enqueued{};
    std::optional<Time> started;
    std::optional<Time> finished;
    [[nodiscard]] std::string describe() const;
  };

  static constexpr std::size_t kEntries = 1024;

  explicit CollectiveLog(std::size_t capacity = kEntries) : entries_(capacity) {}

  void enqueued(const Collective& collective);
  void started(std::uint64_t sequence);
  void finished(std::uint64_t sequence);

  [[nodiscard]] std::optional<Entry> oldest_unfinished() const;
  [[nodiscard]] std::optional<Entry> latest_enqueued() const;
  // Nothing if it has left the buffer.
  [[nodiscard]] std::optional<Entry> collective(std::uint64_t number) const;
  // Counts of operations of all ranks: enqueued, finished.
  [[nodiscard]] std::uint64_t collectives() const;
  [[nodiscard]] std::uint64_t finished_collectives() const;
  [[nodiscard]] std::uint64_t last_enqueued() const;
  [[nodiscard]] std::uint64_t last_finished() const;
  [[nodiscard]] std::vector<Entry> entries() const;
  // [{"sequence", "op", "label", "dtype", "elements", "bytes", "enqueued", "started", "finished"}, ...]; seconds since
  // 1970.
  [[nodiscard]] Json to_json() const;

 private:
  [[nodiscard]] Entry& at(std::uint64_t sequence) { return entries_[sequence % entries_.size()]; }
  [[nodiscard]] const Entry& at(std::uint64_t sequence) const { return entries_[sequence % entries_.size()]; }

  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint64_t last_enqueued_ = 0;
  std::uint64_t collectives_ = 0;
  std::uint64_t last_finished_ = 0;  // operations finish in order
};

// Writes collectives-GROUP-RANK.json next to the launcher's error file (TORCHELASTIC_ERROR_FILE). No-op without a
// launcher; never throws.
void write_collective_log(const CollectiveLog& log, std::string_view group, int rank) noexcept;

}  // namespace quench::distributed
