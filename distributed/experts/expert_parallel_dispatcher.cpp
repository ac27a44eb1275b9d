#include "distributed/experts/expert_parallel_dispatcher.h"

#include <cmath>

#include "core/ops/quantize/quantize.h"
#include "core/system/key_error.h"
#include "core/system/log.h"

namespace quench::distributed {
namespace {

std::vector<std::int64_t> elements(const std::vector<std::int64_t>& rows, std::int64_t width) {
  std::vector<std::int64_t> result;
  for (const std::int64_t count : rows) result.push_back(count * width);
  return result;
}

class OwnedEvent {
 public:
  explicit OwnedEvent(Device device) : event_(backend(device.type).create_event(device)) {}
  ~OwnedEvent() { backend(event_.device.type).destroy_event(event_); }
  OwnedEvent(const OwnedEvent&) = delete;
  OwnedEvent& operator=(const OwnedEvent&) = delete;
  [[nodiscard]] const Event& get() const noexcept { return event_; }

 private:
  Event event_;
};

// Waits for a copy before its tensors are freed; `point`: stream or event.
template <class Point>
void synchronize_quietly(const Point& point) noexcept {
  try {
    backend(point.device.type).synchronize(point);
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("experts' pairs: {}", error.what());
  }
}

}  // namespace

class ExpertParallelDispatcher::CountsInFlight final : public CountExchange {
 public:
  CountsInFlight(const ExpertParallelDispatcher& owner, const Tensor& counts, std::int64_t pairs)
      : owner_(owner), pairs_(pairs) {
    const MemoryScope scope(MemoryCategory::workspace);
    const Device device = counts.device();
    // One copy to the host for both counts.
    both_ = Tensor::zeros({2, counts.numel()}, DType::f32, device);  // an aborted exchange leaves no counts
    both_.select(0, 0).copy_from(counts);
    works_.push_back(owner.group_->all_to_all(both_.select(0, 0), both_.select(0, 1), "experts' pairs"));
    if (device.type != DeviceType::cuda) return;
    Backend& gpu = backend(device.type);
    host_ = Tensor::empty_pinned(both_.shape(), DType::f32, device);
    arrived_.emplace(device);
    const StreamGuard guard(*owner.counts_stream_);
    works_.front().wait();
    gpu.copy(host_.raw_data(), Device{}, both_.raw_data(), device, both_.nbytes(), *owner.counts_stream_);
    try {
      gpu.record(arrived_->get(), *owner.counts_stream_);
    } catch (...) {
      synchronize_quietly(*owner.counts_stream_);
      throw;
    }
  }
  ~CountsInFlight() override {
    if (arrived_) synchronize_quietly(arrived_->get());
  }
  CountsInFlight(const CountsInFlight&) = delete;
  CountsInFlight& operator=(const CountsInFlight&) = delete;

  [[nodiscard]] std::vector<std::int64_t> wait(std::vector<std::int64_t>& own) override {
    const std::int64_t experts = both_.size(1);
    std::vector<std::int64_t> received(static_cast<std::size_t>(experts));
    own.resize(received.size());
    if (both_.device().is_meta()) {
      owner_.clock_->wait(works_);
      // Balanced loads, up to rounding.
      for (std::size_t e = 0; e < own.size(); ++e) {
        const auto at = static_cast<std::int64_t>(e);
        own[e] = (at + 1) * pairs_ / experts - at * pairs_ / experts;
      }
      const std::int64_t here = experts / owner_.size();
      for (std::size_t e = 0; e < own.size(); ++e)
        received[e] = own[static_cast<std::size_t>(owner_.group_->rank() * here + static_cast<std::int64_t>(e) % here)];
      return received;
    }
    if (arrived_) {
      owner_.clock_->wait(arrived_->get());
      backend(both_.device().type).synchronize(arrived_->get());
    } else {
      owner_.clock_->wait(works_);
    }
    const float* values = (arrived_ ? host_ : both_).data<float>();
    for (std::int64_t e = 0; e < experts; ++e) {
      own[static_cast<std::size_t>(e)] = std::llround(values[e]);
      received[static_cast<std::size_t>(e)] = std::llround(values[experts + e]);
    }
    return received;
  }

 private:
  const ExpertParallelDispatcher& owner_;
  std::int64_t pairs_;
  Tensor both_;  // f32 [2,E]: sent, received
  Tensor host_;  // GPU: pinned copy
  std::vector<Work> works_;
  std::optional<OwnedEvent> arrived_;
};

ExpertParallelDispatcher::ExpertParallelDispatcher(std::shared_ptr<ProcessGroup> group, bool mxfp8,
                                                   std::shared_ptr<ExposedCommTimer> clock)
    : group_(std::move(group)), mxfp8_(mxfp8), clock_(std::move(clock)) {
  if (group_->device().type == DeviceType::cuda)
    counts_stream_ = backend(DeviceType::cuda).create_stream(group_->device());
}

ExpertParallelDispatcher::~ExpertParallelDispatcher() {
  if (counts_stream_) backend(DeviceType::cuda).destroy_stream(*counts_stream_);
}

std::unique_ptr<autograd::TokenDispatcher::CountExchange> ExpertParallelDispatcher::exchange_counts(
    const Tensor& counts, std::int64_t pairs) const {
  QUENCH_CHECK(counts.numel() % size() == 0, "{} experts cannot be split over {} processes", counts.numel(), size());
  return std::make_unique<CountsInFlight>(*this, counts, pairs);
}

Tensor ExpertParallelDispatcher::start(const Tensor& rows, const autograd::RowCounts& counts, std::string_view label,
                                       std::vector<Work>& works) const {
  const std::int64_t width = rows.size(1);
  const Tensor out = Tensor::empty({counts.received_rows(), width}, rows.dtype(), rows.device());
  works.push_back(group_->all_to_all(rows, out, elements(counts.sent, width), elements(counts.received, width), label));
  return out;
}

std::pair<Tensor, Tensor> ExpertParallelDispatcher::exchange(const Tensor& rows, const Tensor& values,
                                                             const autograd::RowCounts& counts,
                                                             std::string_view label) const {
  std::vector<Work> works;
  Tensor moved_values;
  const auto move_values = [&] {
    const MemoryScope scope(MemoryCategory::activations);
    if (values.defined()) moved_values = start(values, counts, "experts' weights", works);
  };
  if (!mxfp8_ || !rows.defined()) {
    Tensor moved;
    {
      const CollectiveBatch batch(*group_);
      if (rows.defined()) moved = start(rows, counts, label, works);
      move_values();
    }
    clock_->wait(works);
    return {moved, moved_values};
  }
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "parallel.expert_all_to_all", rows.size(1) % kMxBlockSize == 0,
                   "\"mxfp8\", but rows of {} elements are no multiple of {}; use "
                   "\"high_precision\"",
                   rows.size(1), kMxBlockSize);
  QuantTensor received;
  {
    const MemoryScope scope(MemoryCategory::workspace);
    const QuantTensor sent = quantize_mx(rows, {});
    Tensor payload, scales;
    {
      const CollectiveBatch batch(*group_);
      payload = start(sent.payload(), counts, label, works);
      scales = start(sent.scales(), counts, label, works);
      move_values();
    }
    clock_->wait(works);
    received = QuantTensor(sent.format(), {counts.received_rows(), rows.size(1)}, rows.dtype(), payload, scales);
  }
  return {dequantize(received, rows.dtype()), moved_values};
}

Tensor ExpertParallelDispatcher::move(const Tensor& rows, const autograd::RowCounts& counts,
                                      std::string_view label) const {
  return exchange(rows, {}, counts, label).first;
}

std::pair<Tensor, Tensor> ExpertParallelDispatcher::move_with_values(const Tensor& rows, const Tensor& values,
                                                                     const autograd::RowCounts& counts,
                                                                     std::string_view label) const {
  return exchange(rows, values, counts, label);
}

}  // namespace quench::distributed
