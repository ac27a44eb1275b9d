#include "distributed/mesh.h"

#include <algorithm>
#include <climits>

#include "core/system/check.h"

namespace quench::distributed {
namespace {

constexpr int kShownGroups = 2;
constexpr std::size_t kShownRanks = 4;

// "0-3", "0,4", "0,4,...,28"
std::string ranks_text(const std::vector<int>& ranks, int stride) {
  if (stride == 1 && ranks.size() > 2) return fmt::format("{}-{}", ranks.front(), ranks.back());
  if (ranks.size() <= kShownRanks) return fmt::format("{}", fmt::join(ranks, ","));
  return fmt::format("{},{},...,{}", ranks[0], ranks[1], ranks.back());
}

// "0-3; 4-7", at most kShownGroups.
std::string groups_text(const MeshAxis& axis, int world) {
  std::string text;
  int shown = 0;
  for (int rank = 0; rank < world; ++rank) {
    if (axis.place(rank) != 0) continue;
    if (shown++ == kShownGroups) return text + "; ...";
    text += (text.empty() ? "" : "; ") + ranks_text(axis.ranks(rank), axis.stride);
  }
  return text;
}

}  // namespace

std::vector<int> MeshAxis::ranks(int rank) const {
  std::vector<int> members;
  const int first = rank - place(rank) * stride;
  for (int i = 0; i < size; ++i) members.push_back(first + i * stride);
  return members;
}

std::vector<MeshAxis> mesh_axes(const MeshSizes& sizes) {
  QUENCH_CHECK(std::min({sizes.replicate, sizes.shard, sizes.context, sizes.expert, sizes.tensor, sizes.pipeline}) >= 1,
               "mesh: replicate {}, shard {}, context {}, expert {}, tensor {}, pipeline {}", sizes.replicate,
               sizes.shard, sizes.context, sizes.expert, sizes.tensor, sizes.pipeline);
  QUENCH_CHECK(sizes.world() <= INT_MAX && sizes.copy() % sizes.expert == 0, "mesh of {} ranks: experts on {} of {}",
               sizes.world(), sizes.expert, sizes.copy());
  const auto copy = static_cast<int>(sizes.copy());
  const int tensor = sizes.tensor;
  using namespace mesh_axis;
  return {{kTensor, tensor, 1, "all-gathers token rows, reduce-scatters sums, in every layer", "tensor", true},
          {kShard, copy, tensor, "all-gathers weights, reduce-scatters gradients", "shard"},
          {kReplicate, sizes.replicate, copy * tensor, "sums gradients, once a step", "replicate"},
          {kContext, sizes.context, tensor, "all-gathers keys and values, reduce-scatters their gradients", "context",
           true},
          {kExperts, sizes.expert, tensor, "exchanges token rows with the experts", "experts"},
          // Without expert parallelism experts are sharded as all weights.
          {kExpertShard, copy / sizes.expert, sizes.expert * tensor,
           "all-gathers experts, reduce-scatters their gradients", sizes.expert == 1 ? "shard" : "expert shard"},
          {kPipeline, sizes.pipeline, static_cast<int>(sizes.stage_ranks()),
           "stages send hidden states onwards, their gradients back", "pipeline"}};
}

MeshAxis mesh_axis_of(const MeshSizes& sizes, std::string_view name) {
  const std::vector<MeshAxis> axes = mesh_axes(sizes);
  const auto found = std::ranges::find(axes, name, &MeshAxis::name);
  QUENCH_CHECK(found != axes.end(), "mesh: no axis '{}'", name);
  return *found;
}

std::string describe_sizes(const MeshSizes& sizes) {
  std::string text = fmt::format("{} = replicate {} x shard {} x context {}", sizes.world(), sizes.replicate,
                                 sizes.shard, sizes.context);
  if (sizes.tensor > 1) text += fmt::format(" x tensor {}", sizes.tensor);
  if (sizes.pipeline > 1) text += fmt::format(" x pipeline {}", sizes.pipeline);
  if (sizes.expert > 1) text += fmt::format(", experts over {}", sizes.expert);
  return text;
}

std::string describe_mesh(const MeshSizes& sizes, int node_size) {
  std::string text;
  for (const MeshAxis& axis : mesh_axes(sizes)) {
    if (axis.size == 1 || (axis.name == mesh_axis::kExpertShard && sizes.expert == 1)) continue;
    const int nodes = axis.nodes(node_size);
    text += fmt::format("  {:<13}{} ranks ({}) {}: {}\n", axis.name, axis.size,
                        groups_text(axis, static_cast<int>(sizes.world())),
                        nodes == 1 ? "within a node" : fmt::format("over {} nodes", nodes), axis.traffic);
  }
  return text;
}

}  // namespace quench::distributed
