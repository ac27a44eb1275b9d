#pragma once
// Rank of this process and its groups.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/mesh.h"
#include "distributed/world.h"

namespace quench::distributed {

struct PipelineChannels;

struct Ranks {
  int rank = 0;
  int size = 1;
  MeshSizes mesh{};
  int node_size = 1;  // ranks of a node
  // Device groups: all ranks; one model replica; ranks with the same shard.
  std::shared_ptr<ProcessGroup> world, shard, replicate;
  // Ranks that compute parts of the same sequences.
  std::shared_ptr<ProcessGroup> context;
  // Ranks with slices of the same weights, which read the same sequences.
  std::shared_ptr<ProcessGroup> tensor;
  // Within a replica: expert-parallel group, and ranks with the same experts. Without expert parallelism: this rank,
  // and `shard`.
  std::shared_ptr<ProcessGroup> experts, expert_shard;
  // CPU groups: host-side agreement, and the checkpoint thread.
  std::shared_ptr<ProcessGroup> host, saving;
  // Stages of the same sequences, in their order; and the connections to neighbours (pipeline/pipeline_channels.h),
  // null for one stage.
  std::shared_ptr<ProcessGroup> pipeline;
  std::shared_ptr<const PipelineChannels> channels;

  // A process without others. Its groups have one rank (single_group()) and take tensors of any device; the functions
  // below leave them alone. One object for all users in the process.
  [[nodiscard]] static const std::shared_ptr<const Ranks>& single();

  [[nodiscard]] bool is_first() const noexcept { return rank == 0; }
  [[nodiscard]] bool is_single() const noexcept { return size == 1; }
  // Pipeline stage, and the rank's number in it.
  [[nodiscard]] int stage() const noexcept { return rank / static_cast<int>(mesh.stage_ranks()); }
  [[nodiscard]] int stage_rank() const noexcept { return rank % static_cast<int>(mesh.stage_ranks()); }
  // Among mesh.data() ranks that read different sequences.
  [[nodiscard]] int data_rank() const noexcept { return stage_rank() / (mesh.context * mesh.tensor); }
  // Values that the ranks of a tensor group and the stages have in common are counted by one of them, which has the
  // losses.
  [[nodiscard]] bool counts() const noexcept { return rank % mesh.tensor == 0 && stage() == mesh.pipeline - 1; }
};

// Groups of mesh_axes(), whose sizes multiply to the world size; equal groups are one, except where an axis is apart.
// Collective.
[[nodiscard]] Ranks make_ranks(const std::shared_ptr<World>& world, const MeshSizes& mesh);

// All-gather of short texts, in rank order.
[[nodiscard]] std::vector<std::string> exchange_texts(ProcessGroup& group, std::string_view mine,
                                                      std::string_view label);

// All-reduce (sum or max) over a CPU group. No-op for one rank.
void all_reduce_numbers(ProcessGroup& group, std::span<std::int64_t> numbers, ReduceOp op, std::string_view label);
void all_reduce_numbers(ProcessGroup& group, std::span<double> numbers, ReduceOp op, std::string_view label);
// ProcessGroup::all_reduce(), complete on return as Work::wait() says. No-op for one rank.
void all_reduce(ProcessGroup& group, const Tensor& tensor, ReduceOp op, std::string_view label);

// Timeout of together().
enum class Patience {
  usual,  // default timeout
  files,  // long timeout: other ranks may read or write files
};
// Runs `work` on every rank of a CPU group. If any throws, all throw: their own error, or the first of the others' as
// RelayedError. One rank: `work` alone.
void together(ProcessGroup& group, std::string_view label, const std::function<void()>& work,
              Patience patience = Patience::files);
// The same in the ranks' CPU group.
void together(const Ranks& ranks, std::string_view label, const std::function<void()>& work);
// together(), rank 0 first.
void first_rank_first(ProcessGroup& group, std::string_view label, const std::function<void()>& work);

}  // namespace quench::distributed
