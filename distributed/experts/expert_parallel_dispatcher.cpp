#include "distributed/experts/expert_parallel_dispatcher.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "core/ops/quantize/quantize.h"
#include "core/system/key_error.h"
#include "core/system/log.h"

namespace quench::distributed {

using autograd::GroupRowCounts;
using autograd::TokenRows;

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
    gpu.record(arrived_->get(), *owner.counts_stream_);
  }
  ~CountsInFlight() override {
    if (!arrived_) return;
    try {
      backend(both_.device().type).synchronize(arrived_->get());  // the copy reads and writes this object's tensors
    } catch (const Error& error) {
      QUENCH_LOG_WARN("experts' pairs: {}", error.what());
    }
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

struct ExpertParallelDispatcher::SentRows {
  Tensor rows;    // or payload of MXFP8; undefined: values alone
  Tensor scales;  // of MXFP8
  Tensor values;
  std::optional<QuantFormat> format;
  DType dtype;  // of the activations

  // As many tensors, for `count` rows.
  [[nodiscard]] SentRows empty(std::int64_t count) const {
    const auto fresh = [count](const Tensor& like, MemoryCategory category) {
      if (!like.defined()) return Tensor();
      const MemoryScope scope(category);
      return Tensor::empty({count, like.size(1)}, like.dtype(), like.device());
    };
    return {.rows = fresh(rows, format ? MemoryCategory::workspace : MemoryCategory::activations),
            .scales = fresh(scales, MemoryCategory::workspace),
            .values = fresh(values, MemoryCategory::activations),
            .format = format,
            .dtype = dtype};
  }
};

class ExpertParallelDispatcher::DispatchInFlight final : public Dispatch {
 public:
  DispatchInFlight(const ExpertParallelDispatcher& owner, const TokenRows& rows, std::span<const GroupRowCounts> groups,
                   Order order, std::string_view label)
      : owner_(owner), groups_(groups.size()) {
    const SentRows sent = owner.as_sent(rows);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::size_t at = order == Order::first_to_last ? i : groups.size() - 1 - i;
      groups_[at].received = sent.empty(groups[at].received_rows());
      owner.start(sent, groups_[at].received, groups[at], true, label, groups_[at].works);
    }
  }
  [[nodiscard]] TokenRows wait(std::size_t group) override {
    Group arrived = std::exchange(groups_.at(group), {});
    owner_.clock_->wait(arrived.works);
    return as_received(arrived.received);
  }

 private:
  struct Group {
    SentRows received{};
    std::vector<Work> works;
  };
  const ExpertParallelDispatcher& owner_;
  std::vector<Group> groups_;
};

class ExpertParallelDispatcher::CombineInFlight final : public Combine {
 public:
  CombineInFlight(const ExpertParallelDispatcher& owner, std::span<const GroupRowCounts> groups, std::string_view label)
      : owner_(owner), groups_(groups), label_(label) {}
  void start(std::size_t group, const TokenRows& rows) override {
    const SentRows sent = owner_.as_sent(rows);
    if (works_.empty()) {
      std::int64_t count = 0;
      for (const GroupRowCounts& counts : groups_) count += counts.sent_rows();
      all_ = sent.empty(count);
    }
    owner_.start(sent, all_, groups_[group], false, label_, works_);
  }
  [[nodiscard]] TokenRows wait() override {
    owner_.clock_->wait(works_);
    return as_received(std::exchange(all_, {}));
  }

 private:
  const ExpertParallelDispatcher& owner_;
  std::span<const GroupRowCounts> groups_;
  std::string label_;
  SentRows all_{};
  std::vector<Work> works_;
};

ExpertParallelDispatcher::ExpertParallelDispatcher(std::shared_ptr<ProcessGroup> group, std::int64_t groups, bool mxfp8,
                                                   std::shared_ptr<ExposedCommTimer> clock)
    : group_(std::move(group)), groups_(groups), mxfp8_(mxfp8), clock_(std::move(clock)) {
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

ExpertParallelDispatcher::SentRows ExpertParallelDispatcher::as_sent(const TokenRows& rows) const {
  SentRows sent{.rows = rows.rows, .scales = {}, .values = rows.values, .format = {}, .dtype = DType::f32};
  if (!rows.rows.defined()) return sent;
  sent.dtype = rows.rows.dtype();
  if (!mxfp8_) return sent;
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "parallel.expert_all_to_all", rows.rows.size(1) % kMxBlockSize == 0,
                   "\"mxfp8\", but rows of {} elements are no multiple of {}; use "
                   "\"high_precision\"",
                   rows.rows.size(1), kMxBlockSize);
  const MemoryScope scope(MemoryCategory::workspace);
  const QuantTensor codes = quantize_mx(rows.rows, {});
  sent.rows = codes.payload();
  sent.scales = codes.scales();
  sent.format = codes.format();
  return sent;
}

TokenRows ExpertParallelDispatcher::as_received(const SentRows& received) {
  if (!received.scales.defined()) return {received.rows, received.values};
  const Shape shape = received.rows.shape();
  return {dequantize({*received.format, shape, received.dtype, received.rows, received.scales}, received.dtype),
          received.values};
}

void ExpertParallelDispatcher::start(const SentRows& from, const SentRows& to, const GroupRowCounts& counts,
                                     bool dispatches, std::string_view label, std::vector<Work>& works) const {
  const auto exchange = [&](const Tensor& source, const Tensor& target, std::string_view name) {
    if (!source.defined()) return;
    const std::int64_t width = source.size(1);
    AllToAllParts parts{
        elements(counts.sent, width), elements(counts.first, width), elements(counts.received, width), {}};
    parts.receive_offsets.resize(parts.receive_counts.size());
    std::exclusive_scan(parts.receive_counts.begin(), parts.receive_counts.end(), parts.receive_offsets.begin(),
                        std::int64_t{0});
    if (!dispatches) {
      parts.send_counts.swap(parts.receive_counts);
      parts.send_offsets.swap(parts.receive_offsets);
    }
    works.push_back(group_->all_to_all(source, target, std::move(parts), name));
  };
  const CollectiveBatch batch(*group_);
  exchange(from.rows, to.rows, label);
  exchange(from.scales, to.scales, label);
  exchange(from.values, to.values, "experts' weights");
}

std::unique_ptr<autograd::TokenDispatcher::Dispatch> ExpertParallelDispatcher::dispatch(
    const TokenRows& rows, std::span<const GroupRowCounts> groups, Order order, std::string_view label) const {
  return std::make_unique<DispatchInFlight>(*this, rows, groups, order, label);
}

std::unique_ptr<autograd::TokenDispatcher::Combine> ExpertParallelDispatcher::combine(
    std::span<const GroupRowCounts> groups, std::string_view label) const {
  return std::make_unique<CombineInFlight>(*this, groups, label);
}

}  // namespace quench::distributed
