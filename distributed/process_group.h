#pragma once
// Process group and its collectives.
//
// All ranks of a group call the same operations in the same order. An operation is complete after Work::wait(); until
// then the group holds its tensors, inputs must not be written, outputs neither read nor written. Operations of one
// group run in order, different groups concurrently. GPU operations are ordered after the work queued on the current
// stream.
//
// Tensors are contiguous, on the group's device (one rank: any), with equal dtype and sizes on all ranks. Labels
// (tensor names) are for the collective log and messages. wait() throws Error(failed) on a lost rank or a mismatch,
// naming group, rank, operation and label.

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "core/tensor/tensor.h"
#include "distributed/collective.h"
#include "distributed/collective_log.h"
#include "distributed/communication_error.h"

namespace quench::distributed {

class Watchdog;

// Started operation.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  virtual void wait() = 0;
};

// Handle to an operation. Its destructor does not wait.
class Work {
 public:
  Work() = default;  // complete
  explicit Work(std::shared_ptr<PendingCollective> pending) : pending_(std::move(pending)) {}

  // CPU: blocks until complete. GPU: the current stream waits, the host does not. No-op on a second call.
  void wait() {
    if (const std::shared_ptr<PendingCollective> pending = std::move(pending_)) pending->wait();
  }

 private:
  std::shared_ptr<PendingCollective> pending_;
};

// Operations of one kind.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // sent by this rank, at least (wire_bytes)
};
// By CollectiveKind.
using TrafficByKind = std::array<Traffic, kCollectiveKindCount>;

class ProcessGroup {
 public:
  // `logged`: latest operations in log().
  ProcessGroup(std::string name, int rank, int size, Device device, std::size_t logged = CollectiveLog::kEntries);
  virtual ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

  // In place; f32, f64, bf16, i32, i64. bf16 sums: Gloo accumulates in f32 in rank order; NCCL rounds partial sums. max
  // and min propagate NaN on Gloo.
  [[nodiscard]] Work all_reduce(const Tensor& tensor, ReduceOp op, std::string_view label);
  // whole = concatenation of the ranks' `local` in rank order; `local` may be its slice of `whole`.
  [[nodiscard]] Work all_gather(const Tensor& local, const Tensor& whole, std::string_view label);
  // local = this rank's slice of the reduced `whole`, or stored in that slice of `whole`.
  [[nodiscard]] Work reduce_scatter(const Tensor& whole, const Tensor& local, ReduceOp op, std::string_view label);
  // Part j of rank i's input becomes part i of rank j's output; equal parts.
  [[nodiscard]] Work all_to_all(const Tensor& input, const Tensor& output, std::string_view label);
  // `send_counts[j]` elements to rank j, `receive_counts[j]` from it, concatenated in rank order.
  [[nodiscard]] Work all_to_all(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                                std::span<const std::int64_t> receive_counts, std::string_view label);
  [[nodiscard]] Work broadcast(const Tensor& tensor, int root, std::string_view label);
  // Point-to-point: the n-th send matches the n-th recv between two ranks. Ordered with other operations: in a ring,
  // one rank must receive first.
  [[nodiscard]] Work send(const Tensor& tensor, int to, std::string_view label);
  [[nodiscard]] Work recv(const Tensor& tensor, int from, std::string_view label);
  // Blocks the host.
  void barrier(std::string_view label);

  // Batch scope: an engine may defer operations and start them together (NCCL: one kernel). No wait and no other group
  // inside.
  virtual void begin_batch() {}
  virtual void end_batch() {}

  [[nodiscard]] const TrafficByKind& traffic() const noexcept { return traffic_; }
  void reset_traffic() noexcept { traffic_ = {}; }

  [[nodiscard]] CollectiveLog& log() noexcept { return log_; }
  // Updates the log for operations that complete without the host.
  virtual void poll() {}
  // Fails pending and later operations with this message. Thread-safe.
  virtual void abort(AbortCause cause, const std::string& reason) = 0;
  // Local error while other ranks are in an operation: fails operations of all groups on all ranks.
  void give_up(const std::string& reason) noexcept;
  void watch(std::shared_ptr<Watchdog> watchdog);
  // For later operations.
  virtual void set_timeout(std::chrono::milliseconds) {}
  [[nodiscard]] virtual std::chrono::milliseconds timeout() const { return {}; }

 protected:
  // Starts a validated, logged operation. Null if complete on return.
  virtual std::shared_ptr<PendingCollective> start(const Collective& collective) = 0;
  // First call in the destructor of every abortable group.
  void unwatch() noexcept;
  // `message` with all ranks' diagnosis of a late operation. May take several seconds.
  [[nodiscard]] std::string with_diagnosis(const std::string& message, std::uint64_t sequence);

 private:
  Work begin(Collective collective);
  void check(const Tensor& tensor, std::string_view what, std::string_view label) const;
  void check_number(const Tensor& tensor, std::string_view what, std::string_view label) const;
  void check_peer(int peer, std::string_view what) const;

  std::string name_;
  int rank_;
  int size_;
  Device device_;
  std::uint64_t sequence_ = 0;
  TrafficByKind traffic_{};
  CollectiveLog log_;
  std::shared_ptr<Watchdog> watchdog_;
};

// Operations inside the scope start together at its end.
class CollectiveBatch {
 public:
  explicit CollectiveBatch(ProcessGroup& group) : group_(group) { group_.begin_batch(); }
  // An exception from the scope takes precedence.
  ~CollectiveBatch() noexcept(false) {
    if (std::uncaught_exceptions() == unwinding_) {
      group_.end_batch();
      return;
    }
    try {
      group_.end_batch();
    } catch (const Error&) {
    }
  }
  CollectiveBatch(const CollectiveBatch&) = delete;
  CollectiveBatch& operator=(const CollectiveBatch&) = delete;

 private:
  ProcessGroup& group_;
  int unwinding_ = std::uncaught_exceptions();
};

// One rank, any device: operations are copies.
[[nodiscard]] std::unique_ptr<ProcessGroup> single_group(std::string name, Device device);
// Rank `rank` of `size` on Device{meta}: operations only validate and count bytes.
[[nodiscard]] std::unique_ptr<ProcessGroup> meta_group(std::string name, int rank, int size);

}  // namespace quench::distributed
