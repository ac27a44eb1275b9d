#pragma once
// Ranks that communicate, and their collective operations.
//
// All ranks of a group call the same operations in the same order. Calls return at once; the operation is done when its
// Work has been waited for. Until then its tensors stay alive (the group holds them) and may not be touched: inputs may
// not be written, outputs neither read nor written. Operations of one group run in the order of their calls; those of
// different groups side by side. On a GPU an operation is ordered after the current stream.
//
// Tensors are contiguous, on the group's device, and of the same dtype and sizes on all ranks. Every operation carries
// a label, the name of what it moves, which the log of collectives and messages show. Errors (a rank that has ended,
// another operation on another rank) come out of wait(), as Error(failed) naming group, rank, operation and label.

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

// What an engine returns for an operation under way.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  virtual void wait() = 0;
};

class Work {
 public:
  Work() = default;  // nothing to wait for
  explicit Work(std::shared_ptr<PendingCollective> pending) : pending_(std::move(pending)) {}

  // The calling thread continues when the operation is done (CPU); what is queued on the current stream from now on
  // runs when it is done (GPU: the host does not wait). Nothing the second time.
  void wait() {
    if (const std::shared_ptr<PendingCollective> pending = std::move(pending_)) pending->wait();
  }

 private:
  std::shared_ptr<PendingCollective> pending_;
};

// What a group has been asked to move since its start.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  // that this rank has to send at least (wire_bytes)
};
using TrafficByKind = std::array<Traffic, kCollectiveKindCount>;

class ProcessGroup {
 public:
  ProcessGroup(std::string name, int rank, int size, Device device);
  virtual ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

  // In place. Numbers: f32, f64, bf16, i32, i64; bf16 is summed in f32 where the engine can (Gloo does, and adds in the
  // order of ranks; NCCL rounds each partial sum). NaN wins max and min on Gloo.
  [[nodiscard]] Work all_reduce(const Tensor& tensor, ReduceOp op, std::string_view label);
  // whole = concatenation of every rank's `local`, in rank order: size() times its elements. `local` may be its place
  // in `whole`.
  [[nodiscard]] Work all_gather(const Tensor& local, const Tensor& whole, std::string_view label);
  // local = this rank's part of the sum over the ranks' `whole`. `local` may be its place in `whole`.
  [[nodiscard]] Work reduce_scatter(const Tensor& whole, const Tensor& local, ReduceOp op, std::string_view label);
  // Part j of rank i's input becomes part i of rank j's output; equal parts.
  [[nodiscard]] Work all_to_all(const Tensor& input, const Tensor& output, std::string_view label);
  // The same with parts of `send_counts[j]` elements for rank j and `receive_counts[j]` from it, in rank order.
  [[nodiscard]] Work all_to_all(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                                std::span<const std::int64_t> receive_counts, std::string_view label);
  [[nodiscard]] Work broadcast(const Tensor& tensor, int root, std::string_view label);
  // Between two ranks; the n-th send meets the n-th recv between the same two. They have their place in the order of
  // the group's operations: in a ring one rank receives first.
  [[nodiscard]] Work send(const Tensor& tensor, int to, std::string_view label);
  [[nodiscard]] Work recv(const Tensor& tensor, int from, std::string_view label);
  // Waits for all ranks, on the host.
  void barrier(std::string_view label);

  // Between the two calls an engine may put operations off, to start them as one (NCCL: one kernel in place of one
  // each). Nothing else may be called meanwhile but operations of this group, and nothing waited for
  // (CollectiveBatch).
  virtual void begin_batch() {}
  virtual void end_batch() {}

  [[nodiscard]] const TrafficByKind& traffic() const noexcept { return traffic_; }
  void reset_traffic() noexcept { traffic_ = {}; }

  // The latest operations, for the watchdog and for reports.
  [[nodiscard]] CollectiveLog& log() noexcept { return log_; }
  // Brings the log up to date where operations end without the host.
  virtual void poll() {}
  // Makes operations under way and later ones fail with this message; from any thread.
  virtual void abort(AbortCause cause, const std::string& reason) = 0;
  // For an error that only this rank has while the others are in an operation of theirs, where nothing can be agreed
  // on: operations of all groups fail soon, on all ranks, with this reason.
  void give_up(const std::string& reason) noexcept;
  // Has the group watched from now on (watchdog.h).
  void watch(std::shared_ptr<Watchdog> watchdog);
  // How long one operation may take, from the next one on.
  virtual void set_timeout(std::chrono::milliseconds) {}
  [[nodiscard]] virtual std::chrono::milliseconds timeout() const { return {}; }

 protected:
  // Runs a checked operation. Its sequence number is set and in the log. Null when it is done already.
  virtual std::shared_ptr<PendingCollective> start(const Collective& collective) = 0;
  // First in the destructor of every group that can be aborted: no other thread uses it afterwards.
  void unwatch() noexcept;
  // `message` and the state of a timed-out operation on all ranks. May take some seconds.
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

// Operations of a group that are called while this object lives start together, at its end.
class CollectiveBatch {
 public:
  explicit CollectiveBatch(ProcessGroup& group) : group_(group) { group_.begin_batch(); }
  // An error of a call within is the one to know.
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

// One rank, any device: operations copy where they must.
[[nodiscard]] std::unique_ptr<ProcessGroup> single_group(std::string name, Device device);
// Rank `rank` of `size` on Device{meta}: operations check, count bytes and do nothing.
[[nodiscard]] std::unique_ptr<ProcessGroup> meta_group(std::string name, int rank, int size);

}  // namespace quench::distributed
