#include "distributed/pipeline/stage_exchange.h"

#include <utility>

namespace quench::distributed {
namespace {

// Messages of a kind; the neighbour has received earlier ones by then, unless it lags.
constexpr std::size_t kSendsInFlight = 2;

}  // namespace

StageExchange::StageExchange(const Ranks& ranks, int chunks, Device device)
    : ranks_(ranks),
      place_{ranks.stage(), ranks.mesh.pipeline, chunks},
      device_(device),
      channels_(ranks.channels),
      clock_(device) {
  if (device_.type != DeviceType::cuda || place_.stages == 1) return;
  Backend& owner = backend(device_.type);
  stream_ = owner.create_stream(device_);
  reached_ = owner.create_event(device_);
}

StageExchange::~StageExchange() {
  if (device_.type != DeviceType::cuda || place_.stages == 1) return;
  Backend& owner = backend(device_.type);
  owner.destroy_event(reached_);
  owner.destroy_stream(stream_);
}

ProcessGroup* StageExchange::source(const PipelineOp& op) const {
  if (op.forward) return place_.is_first(op.chunk) ? nullptr : channels_->states_in.get();
  return place_.is_last(op.chunk) ? nullptr : channels_->gradients_in.get();
}

ProcessGroup* StageExchange::target(const PipelineOp& op) const {
  if (op.forward) return place_.is_last(op.chunk) ? nullptr : channels_->states_out.get();
  return place_.is_first(op.chunk) ? nullptr : channels_->gradients_out.get();
}

void StageExchange::begin(std::vector<PipelineOp> ops, std::span<const std::int64_t> rows, std::int64_t width,
                          DType dtype) {
  ops_ = std::move(ops);
  rows_.assign(rows.begin(), rows.end());
  width_ = width;
  dtype_ = dtype;
  next_ = 0;
  expected_ = ops_.size();
}

void StageExchange::prepare(std::size_t op) {
  if (op >= ops_.size() || expected_ == op || source(ops_[op]) == nullptr) return;
  const MemoryScope scope(MemoryCategory::activations);
  arriving_ = Tensor::empty({rows_[static_cast<std::size_t>(ops_[op].micro_batch)], width_}, dtype_, device_);
  expected_ = op;
  posted_ = false;
  // The buffer may have been that of work queued before.
  if (stream_.handle != nullptr) backend(device_.type).record(reached_, current_stream(device_));
  if (device_.type != DeviceType::cuda) post();
}

void StageExchange::post() {
  if (expected_ >= ops_.size() || std::exchange(posted_, true)) return;
  const PipelineOp& op = ops_[expected_];
  const auto receive = [&] {
    receiving_.push_back(source(op)->recv(arriving_, 0, op.forward ? "hidden states" : "gradient of hidden states"));
  };
  if (stream_.handle == nullptr) return receive();
  backend(device_.type).wait(stream_, reached_);
  const StreamGuard guard(stream_);
  receive();
}

Tensor StageExchange::take() {
  const std::size_t op = next_++;
  prepare(op);
  Tensor input;
  if (expected_ == op) {
    post();
    clock_.wait(receiving_);
    input = std::exchange(arriving_, Tensor());
    expected_ = ops_.size();
  }
  prepare(op + 1);
  return input;
}

void StageExchange::give(const Tensor& result) {
  const PipelineOp& op = ops_[next_ - 1];
  if (ProcessGroup* to = target(op)) {
    QUENCH_CHECK(result.dtype() == dtype_ && result.size(1) == width_, "pipeline: {} to send, expected {} of width {}",
                 result.describe(), to_string(dtype_), width_);
    std::deque<Work>& sent = sent_[op.forward ? 0 : 1];
    sent.push_back(to->send(result, 1, op.forward ? "hidden states" : "gradient of hidden states"));
    for (; sent.size() > kSendsInFlight; sent.pop_front()) sent.front().wait();
  }
  post();
}

void StageExchange::finish_sends() {
  for (std::deque<Work>& sent : sent_)
    for (; !sent.empty(); sent.pop_front()) sent.front().wait();
}

void StageExchange::sum(const Tensor& value) const {
  if (place_.stages > 1) ranks_.pipeline->all_reduce(value, ReduceOp::sum, "gradient norm").wait();
}

void StageExchange::sum_ends(const Tensor& gradient) {
  if (gradient.numel() == 0) return;
  std::vector<Work> works;
  works.push_back(channels_->ends->all_reduce(gradient, ReduceOp::sum, "gradient of the tied table"));
  clock_.wait(works);
}

}  // namespace quench::distributed
