#include "distributed/tensor/group_tensor_exchange.h"

#include <algorithm>
#include <cstring>

#include "core/ops/elementwise.h"

namespace quench::distributed {
namespace {

// A message's length and its first bytes, of one broadcast; longer ones take another.
constexpr std::int64_t kInlineBytes = 4096;
// A server may have no requests for days. A lost rank is still detected.
constexpr std::chrono::hours kNoLimit{24 * 365 * 10};

}  // namespace

GroupTensorExchange::GroupTensorExchange(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ExposedCommTimer> clock,
                                         std::shared_ptr<ProcessGroup> texts)
    : group_(std::move(group)), clock_(std::move(clock)), texts_(std::move(texts)) {
  if (texts_) texts_->set_timeout(kNoLimit);
}

GroupTensorExchange::Pending GroupTensorExchange::pending(Tensor rows, Work work) const {
  return {std::move(rows),
          [clock = clock_, works = std::vector<Work>{std::move(work)}]() mutable { clock->wait(works); }};
}

GroupTensorExchange::Pending GroupTensorExchange::begin_gather(const Tensor& rows) const {
  const std::int64_t count = rows.size(0);
  const Tensor all = Tensor::empty({size() * count, rows.size(1)}, rows.dtype(), rows.device());
  const Tensor own = rows.is_contiguous() ? rows : all.narrow(0, rank() * count, count);
  if (!rows.is_contiguous()) copy_rows({.from = rows, .to = own});
  return pending(all, group_->all_gather(own, all, "token rows"));
}

GroupTensorExchange::Pending GroupTensorExchange::begin_reduce(const Tensor& whole) const {
  QUENCH_CHECK(whole.size(0) % size() == 0, "tensor exchange: {} rows of {} ranks", whole.size(0), size());
  const Tensor own = Tensor::empty({whole.size(0) / size(), whole.size(1)}, whole.dtype(), whole.device());
  return pending(own, group_->reduce_scatter(whole, own, ReduceOp::sum, "sums of token rows"));
}

std::string GroupTensorExchange::share(std::string text) const {
  QUENCH_CHECK(texts_ != nullptr, "tensor exchange: no group for texts");
  QUENCH_CHECK(!abandoned_, "tensor exchange: the other ranks are in the middle of a pass that failed");
  const MemoryScope scope(MemoryCategory::other);
  const Tensor head = Tensor::zeros({kInlineBytes}, DType::u8);
  auto* const bytes = static_cast<char*>(head.raw_data());
  constexpr std::int64_t kLength = sizeof(std::int64_t), kFirst = kInlineBytes - kLength;
  std::int64_t length = std::ssize(text);
  if (rank() == 0) {
    std::memcpy(bytes, &length, kLength);
    std::copy_n(text.data(), std::min(length, kFirst), bytes + kLength);
  }
  texts_->broadcast(head, 0, "length of a text").wait();
  std::memcpy(&length, bytes, kLength);
  if (rank() > 0) text.assign(bytes + kLength, static_cast<std::size_t>(std::min(length, kFirst)));
  if (length <= kFirst) return text;
  text.resize(static_cast<std::size_t>(length));
  const Tensor rest = Tensor::empty({length - kFirst}, DType::u8);
  if (rank() == 0) std::copy_n(text.data() + kFirst, length - kFirst, static_cast<char*>(rest.raw_data()));
  texts_->broadcast(rest, 0, "text").wait();
  std::copy_n(static_cast<const char*>(rest.raw_data()), length - kFirst, text.data() + kFirst);
  return text;
}

}  // namespace quench::distributed
