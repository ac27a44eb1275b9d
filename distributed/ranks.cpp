#include "distributed/ranks.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>

namespace quench::distributed {
namespace {

// One rank may read, tokenize or write files. A lost rank is still detected.
constexpr auto kFilesTime = std::chrono::hours(12);

class LongWait {
 public:
  explicit LongWait(ProcessGroup& group) : group_(group), before_(group.timeout()) {
    group_.set_timeout(std::max<std::chrono::milliseconds>(before_, kFilesTime));
  }
  ~LongWait() { group_.set_timeout(before_); }
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

 private:
  ProcessGroup& group_;
  std::chrono::milliseconds before_;
};

// Code, then message. Empty: none.
std::string to_text(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return fmt::format("{} {}", static_cast<int>(known.code()), known.what());
  } catch (const std::exception& other) {
    return fmt::format("{} {}", static_cast<int>(ErrorCode::failed), other.what());
  }
}

void agree(ProcessGroup& group, std::string_view label, const std::exception_ptr& own) {
  std::vector<std::string> errors;
  try {
    errors = exchange_texts(group, to_text(own), label);
  } catch (const std::exception&) {
    if (!own) throw;  // a local error may have caused it
  }
  if (own) std::rethrow_exception(own);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) continue;
    const std::size_t space = errors[rank].find(' ');
    const int code = std::stoi(errors[rank].substr(0, space));
    throw RelayedError(static_cast<ErrorCode>(code), fmt::format("rank {}: {}", rank, errors[rank].substr(space + 1)));
  }
}

// In place, by way of a tensor.
template <class T>
void reduce_numbers(ProcessGroup& group, std::span<T> numbers, ReduceOp op, std::string_view label) {
  if (group.size() == 1) return;
  const MemoryScope scope(MemoryCategory::other);
  const Tensor tensor = Tensor::empty({static_cast<std::int64_t>(numbers.size())}, dtype_of<T>);
  std::ranges::copy(numbers, tensor.data<T>());
  group.all_reduce(tensor, op, label).wait();
  std::copy_n(tensor.data<T>(), numbers.size(), numbers.data());
}

}  // namespace

const std::shared_ptr<const Ranks>& Ranks::single() {
  static const std::shared_ptr<const Ranks> ranks = [] {
    const std::shared_ptr<ProcessGroup> group = single_group("single", {});
    return std::make_shared<const Ranks>(
        Ranks{0, 1, {}, 1, group, group, group, group, group, group, group, group, group, group, nullptr});
  }();
  return ranks;
}

Ranks make_ranks(const std::shared_ptr<World>& world, const MeshSizes& mesh) {
  QUENCH_CHECK(mesh.world() == world->size(), "a mesh of {} ranks for {}", mesh.world(), world->size());
  Ranks ranks{.rank = world->rank(), .size = world->size(), .mesh = mesh};
  ranks.node_size = world->environment().local_world_size;
  ranks.world = {world, &world->all()};
  ranks.host = {world, &world->host()};
  struct Made {
    std::vector<int> members;
    std::shared_ptr<ProcessGroup> group;
  };
  std::vector<int> everyone(static_cast<std::size_t>(ranks.size));
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<Made> made{{std::move(everyone), ranks.world}};
  const auto group = [&](std::string_view name) {
    const MeshAxis axis = mesh_axis_of(mesh, name);
    const std::vector<int> members = axis.ranks(ranks.rank);
    const auto same = std::ranges::find(made, members, &Made::members);
    if (same != made.end() && !axis.is_apart) return same->group;
    std::shared_ptr<ProcessGroup> own =
        world->make_group(fmt::format("{} {}", axis.group, axis.number(ranks.rank)), members);
    if (!axis.is_apart) made.push_back({members, own});
    return own;
  };
  ranks.shard = group(mesh_axis::kShard);
  ranks.replicate = group(mesh_axis::kReplicate);
  ranks.context = group(mesh_axis::kContext);
  ranks.tensor = group(mesh_axis::kTensor);
  ranks.experts = group(mesh_axis::kExperts);
  ranks.expert_shard = group(mesh_axis::kExpertShard);
  ranks.pipeline = group(mesh_axis::kPipeline);
  ranks.saving = world->make_host_group("saving");
  return ranks;
}

std::vector<std::string> exchange_texts(ProcessGroup& group, std::string_view mine, std::string_view label) {
  if (group.size() == 1) return {std::string(mine)};
  const auto ranks = static_cast<std::size_t>(group.size());
  std::vector<std::int64_t> lengths(ranks);
  lengths[static_cast<std::size_t>(group.rank())] = static_cast<std::int64_t>(mine.size());
  all_reduce_numbers(group, lengths, ReduceOp::sum, label);
  const std::int64_t longest = *std::ranges::max_element(lengths);
  std::vector<std::string> texts(ranks);
  if (longest == 0) return texts;
  const MemoryScope scope(MemoryCategory::other);
  const Tensor own = Tensor::zeros({longest}, DType::u8), all = Tensor::empty({longest * group.size()}, DType::u8);
  std::ranges::copy(mine, static_cast<char*>(own.raw_data()));
  group.all_gather(own, all, label).wait();
  for (std::size_t rank = 0; rank < ranks; ++rank)
    texts[rank].assign(static_cast<const char*>(all.raw_data()) + static_cast<std::int64_t>(rank) * longest,
                       static_cast<std::size_t>(lengths[rank]));
  return texts;
}

void all_reduce_numbers(ProcessGroup& group, std::span<std::int64_t> numbers, ReduceOp op, std::string_view label) {
  reduce_numbers(group, numbers, op, label);
}

void all_reduce_numbers(ProcessGroup& group, std::span<double> numbers, ReduceOp op, std::string_view label) {
  reduce_numbers(group, numbers, op, label);
}

void all_reduce(ProcessGroup& group, const Tensor& tensor, ReduceOp op, std::string_view label) {
  if (group.size() > 1) group.all_reduce(tensor, op, label).wait();
}

void together(ProcessGroup& group, std::string_view label, const std::function<void()>& work, Patience patience) {
  if (group.size() == 1) return work();
  std::optional<LongWait> wait;
  if (patience == Patience::files) wait.emplace(group);
  std::exception_ptr error;
  try {
    work();
  } catch (...) {
    error = std::current_exception();
  }
  agree(group, label, error);
}

void together(const Ranks& ranks, std::string_view label, const std::function<void()>& work) {
  together(*ranks.host, label, work);
}

void first_rank_first(ProcessGroup& group, std::string_view label, const std::function<void()>& work) {
  together(group, label, [&] {
    if (group.rank() == 0) work();
  });
  together(group, label, [&] {
    if (group.rank() != 0) work();
  });
}

}  // namespace quench::distributed
