#pragma once
// Point-to-point transfers of hidden states and their gradients between pipeline stages, for the passes of a schedule.
//
// The input of the next pass is received while a pass runs; sends are not waited for. On a GPU a receive starts after
// the host has queued the pass before it: a kernel that waits for a neighbour never precedes work that the neighbour
// waits for. The sums over stages of a step are here too.

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "distributed/exposed_comm_timer.h"
#include "distributed/pipeline/pipeline_channels.h"
#include "distributed/pipeline/pipeline_schedule.h"

namespace quench::distributed {

// One stage without neighbours: no transfers. All stages run the same micro-batches in orders that agree.
class StageExchange {
 public:
  StageExchange(const Ranks& ranks, int chunks, Device device);
  ~StageExchange();
  StageExchange(const StageExchange&) = delete;
  StageExchange& operator=(const StageExchange&) = delete;

  [[nodiscard]] const PipelinePlace& place() const noexcept { return place_; }

  // Before the passes of `ops`, which run in this order. `rows`: of hidden states, by micro-batch.
  void begin(std::vector<PipelineOp> ops, std::span<const std::int64_t> rows, std::int64_t width, DType dtype);
  // What the next pass reads, [rows, width]: states of the chunk before, or the gradient of its own states. Undefined
  // for the first chunk's forward pass and the last chunk's backward pass.
  [[nodiscard]] Tensor take();
  // After the pass: its result for the neighbour; undefined where there is none to be sent.
  void give(const Tensor& result);
  // Waits until everything has been sent.
  void finish_sends();

  // Sum over the stages, f64 [1]. In place.
  void sum(const Tensor& value) const;
  // Sum of a tied table's gradient over the two stages that hold it; nothing on others. In place.
  void sum_ends(const Tensor& gradient);
  // Time since the last call in which a pass waited for its input.
  [[nodiscard]] double take_waiting_seconds() { return clock_.take_seconds(); }

 private:
  [[nodiscard]] ProcessGroup* source(const PipelineOp& op) const;
  [[nodiscard]] ProcessGroup* target(const PipelineOp& op) const;
  void prepare(std::size_t op);
  void post();

  const Ranks& ranks_;
  PipelinePlace place_;
  Device device_;
  std::shared_ptr<const PipelineChannels> channels_;
  ExposedCommTimer clock_;
  std::vector<PipelineOp> ops_;
  std::vector<std::int64_t> rows_;
  std::int64_t width_ = 0;
  DType dtype_ = DType::f32;
  std::size_t next_ = 0;  // op of the next take()
  // Input of ops_[expected_], if not yet taken.
  std::size_t expected_ = 0;
  Tensor arriving_;
  std::vector<Work> receiving_;
  bool posted_ = false;
  std::array<std::deque<Work>, 2> sent_;  // states, gradients
  Stream stream_;                         // for receives; CPU: none
  Event reached_;
};

}  // namespace quench::distributed
