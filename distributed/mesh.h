#pragma once
// Mesh of a run's ranks: the only place where process groups are derived from the sizes of section parallel.
//
// Ranks are numbered with `tensor` innermost, then `context`, `shard`, `replicate` and `pipeline`. Every kind of group
// is a row of mesh_axes(): `size` ranks that are `stride` apart. A rank belongs to one group of each row.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quench::distributed {

struct MeshSizes {
  int replicate = 1;  // copies of the model
  int shard = 1;      // parts of the data in a copy
  int context = 1;    // parts of each sequence
  int expert = 1;     // ranks of a copy that split the experts
  int tensor = 1;     // slices of the weights
  int pipeline = 1;   // stages: parts of the layers

  // Ranks that share one copy of the parameters, or of a slice of those of a stage.
  [[nodiscard]] std::int64_t copy() const noexcept { return std::int64_t{shard} * context; }
  [[nodiscard]] std::int64_t stage_ranks() const noexcept { return replicate * copy() * tensor; }
  [[nodiscard]] std::int64_t world() const noexcept { return stage_ranks() * pipeline; }
  // Ranks that read different sequences.
  [[nodiscard]] int data() const noexcept { return replicate * shard; }
};

struct MeshAxis {
  std::string_view name;
  int size = 1;
  int stride = 1;
  std::string_view traffic;  // for reports
  std::string_view group;    // prefix of the names of its groups
  // A group of its own even where another axis has the same ranks: its operations do not wait for others.
  bool is_apart = false;

  // Ranks of the group of `rank`, ascending.
  [[nodiscard]] std::vector<int> ranks(int rank) const;
  // Place of `rank` in its group.
  [[nodiscard]] int place(int rank) const noexcept { return rank / stride % size; }
  // Number of its group among all of the axis.
  [[nodiscard]] int number(int rank) const noexcept { return rank / (stride * size) * stride + rank % stride; }
  // Nodes of `node_size` consecutive ranks that the group of rank 0 touches.
  [[nodiscard]] int nodes(int node_size) const noexcept { return (stride * (size - 1)) / node_size + 1; }
};

// Names of the rows of mesh_axes().
namespace mesh_axis {
inline constexpr std::string_view kTensor = "tensor";             // slices of the same weights
inline constexpr std::string_view kShard = "shard";               // MeshSizes::copy() ranks: FSDP
inline constexpr std::string_view kReplicate = "replicate";       // equal shards of all copies
inline constexpr std::string_view kContext = "context";           // parts of the same sequences
inline constexpr std::string_view kPipeline = "pipeline";         // stages of the same sequences
inline constexpr std::string_view kExperts = "expert";            // all experts
inline constexpr std::string_view kExpertShard = "expert shard";  // equal experts of a copy
}  // namespace mesh_axis

// Throws invalid_argument for a size below 1, and unless `expert` divides the ranks of a copy.
[[nodiscard]] std::vector<MeshAxis> mesh_axes(const MeshSizes& sizes);
// Throws invalid_argument for an unknown name.
[[nodiscard]] MeshAxis mesh_axis_of(const MeshSizes& sizes, std::string_view name);

// "8 = replicate 2 x shard 2 x context 2"
[[nodiscard]] std::string describe_sizes(const MeshSizes& sizes);
// Which ranks exchange what over which link, a line for each axis of more than one rank, on nodes of `node_size`
// ranks; without axes of equal groups twice.
[[nodiscard]] std::string describe_mesh(const MeshSizes& sizes, int node_size);

}  // namespace quench::distributed
