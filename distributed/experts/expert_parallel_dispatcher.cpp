#include "distributed/experts/expert_parallel_dispatcher.h"

#include <cmath>

#include "core/ops/quantize/quantize.h"
#include "core/system/key_error.h"

namespace quench::distributed {
namespace {

std::vector<std::int64_t> elements(const std::vector<std::int64_t>& rows, std::int64_t width) {
  std::vector<std::int64_t> result;
  for (const std::int64_t count : rows) result.push_back(count * width);
  return result;
}

}  // namespace

ExpertParallelDispatcher::ExpertParallelDispatcher(std::shared_ptr<ProcessGroup> group, bool mxfp8,
                                                   std::shared_ptr<ExposedCommTimer> clock)
    : group_(std::move(group)), mxfp8_(mxfp8), clock_(std::move(clock)) {}

std::vector<std::int64_t> ExpertParallelDispatcher::exchange_counts(const Tensor& counts, std::int64_t pairs,
                                                                    std::vector<std::int64_t>& own) const {
  const std::int64_t experts = counts.numel();
  QUENCH_CHECK(experts % size() == 0, "{} experts cannot be split over {} processes", experts, size());
  const MemoryScope scope(MemoryCategory::workspace);
  // One device-to-host copy for both counts.
  const Tensor both = Tensor::empty({2, experts}, DType::f32, counts.device());
  both.select(0, 0).copy_from(counts);
  std::vector<Work> works;
  works.push_back(group_->all_to_all(both.select(0, 0), both.select(0, 1), "experts' pairs"));
  clock_->wait(works);
  std::vector<std::int64_t> received(static_cast<std::size_t>(experts));
  own.resize(received.size());
  if (counts.device().is_meta()) {
    // Balanced loads, up to rounding.
    for (std::size_t e = 0; e < own.size(); ++e) {
      const auto at = static_cast<std::int64_t>(e);
      own[e] = (at + 1) * pairs / experts - at * pairs / experts;
    }
    const std::int64_t here = experts / size();
    for (std::size_t e = 0; e < own.size(); ++e)
      received[e] = own[static_cast<std::size_t>(group_->rank() * here + static_cast<std::int64_t>(e) % here)];
    return received;
  }
  const Tensor host = both.to(Device{});
  const float* values = host.data<float>();
  for (std::int64_t e = 0; e < experts; ++e) {
    own[static_cast<std::size_t>(e)] = std::llround(values[e]);
    received[static_cast<std::size_t>(e)] = std::llround(values[experts + e]);
  }
  return received;
}

Tensor ExpertParallelDispatcher::all_to_all(const Tensor& rows, const autograd::RowCounts& counts,
                                            std::string_view label) const {
  const std::int64_t width = rows.size(1);
  const Tensor out = Tensor::empty({counts.received_rows(), width}, rows.dtype(), rows.device());
  std::vector<Work> works;
  works.push_back(group_->all_to_all(rows, out, elements(counts.sent, width), elements(counts.received, width), label));
  clock_->wait(works);
  return out;
}

Tensor ExpertParallelDispatcher::move(const Tensor& rows, const autograd::RowCounts& counts, bool activations,
                                      std::string_view label) const {
  if (!mxfp8_ || !activations) return all_to_all(rows, counts, label);
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "parallel.expert_all_to_all", rows.size(1) % kMxBlockSize == 0,
                   "\"mxfp8\", but rows of {} elements are no multiple of {}; use "
                   "\"high_precision\"",
                   rows.size(1), kMxBlockSize);
  QuantTensor received;
  {
    const MemoryScope scope(MemoryCategory::workspace);
    const QuantTensor sent = quantize_mx(rows, {});
    received = QuantTensor(sent.format(), {counts.received_rows(), rows.size(1)}, rows.dtype(),
                           all_to_all(sent.payload(), counts, label), all_to_all(sent.scales(), counts, label));
  }
  return dequantize(received, rows.dtype());
}

}  // namespace quench::distributed
