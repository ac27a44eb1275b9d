#include "distributed/process_group.h"

#include "distributed/watchdog.h"

namespace quench::distributed {
namespace {

std::vector<std::int64_t> equal_counts(const Tensor& tensor, int size) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(size), tensor.numel() / size);
}

void check_counts(std::string_view what, std::span<const std::int64_t> counts, const Tensor& tensor, int size,
                  std::string_view label) {
  QUENCH_CHECK(static_cast<int>(counts.size()) == size, "all_to_all of '{}': {} {} counts for {} ranks", label,
               counts.size(), what, size);
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    QUENCH_CHECK(count >= 0, "all_to_all of '{}': a {} count of {}", label, what, count);
    sum += count;
  }
  QUENCH_CHECK(sum == tensor.numel(), "all_to_all of '{}': {} counts add up to {}, the tensor has {} elements", label,
               what, sum, tensor.numel());
}

}  // namespace

ProcessGroup::ProcessGroup(std::string name, int rank, int size, Device device, std::size_t logged)
    : name_(std::move(name)), rank_(rank), size_(size), device_(device), log_(logged) {
  QUENCH_CHECK(size >= 1 && rank >= 0 && rank < size, "group '{}': rank {} of {}", name_, rank, size);
}

ProcessGroup::~ProcessGroup() {
  unwatch();
}

void ProcessGroup::watch(std::shared_ptr<Watchdog> watchdog) {
  unwatch();
  watchdog_ = std::move(watchdog);
  if (watchdog_) watchdog_->add(*this);
}

void ProcessGroup::unwatch() noexcept {
  if (watchdog_) watchdog_->remove(*this);
}

void ProcessGroup::give_up(const std::string& reason) noexcept {
  if (watchdog_) watchdog_->give_up(reason);
}

std::string ProcessGroup::with_diagnosis(const std::string& message, std::uint64_t sequence) {
  if (!watchdog_) return message;
  std::uint64_t collective = 0;
  for (const CollectiveLog::Entry& entry : log_.entries())
    if (entry.sequence == sequence) collective = entry.collective;
  return watchdog_->report_late(*this, collective, message);
}

void ProcessGroup::check(const Tensor& tensor, std::string_view what, std::string_view label) const {
  QUENCH_CHECK(tensor.defined() && tensor.is_contiguous() && (size_ == 1 || tensor.device() == device_),
               "{} of '{}' in group '{}': the tensor is {}, expected a contiguous one on {}", what, label, name_,
               tensor.defined() ? tensor.describe() : "undefined", device_.to_string());
}

void ProcessGroup::check_number(const Tensor& tensor, std::string_view what, std::string_view label) const {
  check(tensor, what, label);
  dispatch<float, double, bfloat16, std::int32_t, std::int64_t>(tensor.dtype(), what, []<class T>() {});
}

void ProcessGroup::check_peer(int peer, std::string_view what) const {
  QUENCH_CHECK(peer >= 0 && peer < size_, "{} in group '{}': rank {} of {}", what, name_, peer, size_);
}

Work ProcessGroup::begin(Collective collective) {
  collective.sequence = ++sequence_;
  Traffic& traffic = traffic_[static_cast<std::size_t>(collective.kind)];
  ++traffic.calls;
  traffic.bytes += wire_bytes(collective, rank_, size_);
  log_.enqueued(collective);
  return Work(start(collective));
}

Work ProcessGroup::all_reduce(const Tensor& tensor, ReduceOp op, std::string_view label) {
  check_number(tensor, "all_reduce", label);
  Collective collective{CollectiveKind::all_reduce, op};
  collective.input = collective.output = tensor;
  collective.label = label;
  return begin(std::move(collective));
}

Work ProcessGroup::all_gather(const Tensor& local, const Tensor& whole, std::string_view label) {
  check(local, "all_gather", label);
  check(whole, "all_gather", label);
  QUENCH_CHECK(whole.dtype() == local.dtype() && whole.numel() == size_ * local.numel(),
               "all_gather of '{}' in group '{}': {} from {} ranks does not give {}", label, name_, local.describe(),
               size_, whole.describe());
  Collective collective{CollectiveKind::all_gather};
  collective.input = local;
  collective.output = whole;
  collective.label = label;
  return begin(std::move(collective));
}

Work ProcessGroup::reduce_scatter(const Tensor& whole, const Tensor& local, ReduceOp op, std::string_view label) {
  check_number(whole, "reduce_scatter", label);
  check_number(local, "reduce_scatter", label);
  QUENCH_CHECK(whole.dtype() == local.dtype() && whole.numel() == size_ * local.numel(),
               "reduce_scatter of '{}' in group '{}': {} in {} parts does not give {}", label, name_, whole.describe(),
               size_, local.describe());
  Collective collective{CollectiveKind::reduce_scatter, op};
  collective.input = whole;
  collective.output = local;
  collective.label = label;
  return begin(std::move(collective));
}

Work ProcessGroup::all_to_all(const Tensor& input, const Tensor& output, std::string_view label) {
  check(input, "all_to_all", label);
  check(output, "all_to_all", label);
  QUENCH_CHECK(input.numel() % size_ == 0 && input.numel() == output.numel(),
               "all_to_all of '{}' in group '{}': {} to {} in {} equal parts", label, name_, input.describe(),
               output.describe(), size_);
  return all_to_all(input, output, equal_counts(input, size_), equal_counts(output, size_), label);
}

Work ProcessGroup::all_to_all(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                              std::span<const std::int64_t> receive_counts, std::string_view label) {
  check(input, "all_to_all", label);
  check(output, "all_to_all", label);
  QUENCH_CHECK(input.dtype() == output.dtype(), "all_to_all of '{}' in group '{}': {} to {}", label, name_,
               input.describe(), output.describe());
  check_counts("send", send_counts, input, size_, label);
  check_counts("receive", receive_counts, output, size_, label);
  const auto own = static_cast<std::size_t>(rank_);
  QUENCH_CHECK(send_counts[own] == receive_counts[own],
               "all_to_all of '{}' in group '{}': rank {} sends itself {} elements and expects {}", label, name_, rank_,
               send_counts[own], receive_counts[own]);
  Collective collective{CollectiveKind::all_to_all};
  collective.input = input;
  collective.output = output;
  collective.send_counts.assign(send_counts.begin(), send_counts.end());
  collective.receive_counts.assign(receive_counts.begin(), receive_counts.end());
  collective.label = label;
  return begin(std::move(collective));
}

Work ProcessGroup::broadcast(const Tensor& tensor, int root, std::string_view label) {
  check(tensor, "broadcast", label);
  check_peer(root, "broadcast");
  Collective collective{CollectiveKind::broadcast};
  collective.peer = root;
  collective.input = collective.output = tensor;
  collective.label = label;
  return begin(std::move(collective));
}

Work ProcessGroup::send(const Tensor& tensor, int to, std::string_view label) {
  check(tensor, "send", label);
  check_peer(to, "send");
  QUENCH_CHECK(to != rank_, "send of '{}' in group '{}': rank {} to itself", label, name_, rank_);
  Collective collective{CollectiveKind::send};
  collective.peer = to;
  collective.input = tensor;
  collective.label = label;
  return begin(std::move(collective));
}

Work ProcessGroup::recv(const Tensor& tensor, int from, std::string_view label) {
  check(tensor, "recv", label);
  check_peer(from, "recv");
  QUENCH_CHECK(from != rank_, "recv of '{}' in group '{}': rank {} from itself", label, name_, rank_);
  Collective collective{CollectiveKind::receive};
  collective.peer = from;
  collective.output = tensor;
  collective.label = label;
  return begin(std::move(collective));
}

void ProcessGroup::barrier(std::string_view label) {
  Collective collective{CollectiveKind::barrier};
  collective.label = label;
  begin(std::move(collective)).wait();
}

}  // namespace quench::distributed
