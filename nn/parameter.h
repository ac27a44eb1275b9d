#pragma once
// A trainable tensor: its name, its place in the global model, and how it is called in Hugging Face checkpoints.

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/weight.h"

namespace quench::nn {

using autograd::Variable;
using autograd::Weight;

// The rows of axis 0 of the global tensor that this process holds. Everything outside distributed training holds all.
struct ShardSpec {
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
};

// How the rows of a parameter are shared out. They form `parts` equal parts, which `parts` divides exactly: one for all
// parameters but those of experts, whose parts belong to different processes for good. `count` processes hold a part
// together: process i those rows of it from i * chunk on, where chunk is the part's rows / count rounded up. The last
// processes may hold fewer, or none.
struct Sharding {
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::int64_t part = 0;
  std::int64_t parts = 1;

  // Whether one process holds all rows.
  [[nodiscard]] bool is_whole() const noexcept { return count == 1 && parts == 1; }
  // This process's part of `rows` rows: what a gather brings together.
  [[nodiscard]] ShardSpec region(std::int64_t rows) const noexcept { return {part * (rows / parts), rows / parts}; }
  [[nodiscard]] std::int64_t chunk(std::int64_t rows) const noexcept { return (rows / parts + count - 1) / count; }
  [[nodiscard]] ShardSpec of(std::int64_t rows) const noexcept;
};

// Some rows of a parameter under the name they have in a Hugging Face checkpoint. Fused projections have several.
struct ParameterPiece {
  std::string hf_name;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
};

enum class Initializer { normal, uniform, ones, zeros };

struct Parameter {
  std::string name;   // full path in the module tree: "model.layers.0.self_attn.qkv_proj.weight"
  Variable variable;  // the local shard, which the optimizer updates; no gradient when frozen
  // The memory of the shard with as many rows as the largest one has: what processes exchange. The rows behind the
  // shard's own are zeros. Undefined where nothing is exchanged: one process holds all rows of its part.
  Tensor padded;
  // Rows belong to so many experts, one behind the other, in equal numbers; 0: to none. It may be shared out by expert.
  std::int64_t experts = 0;
  // The parameter (this process's part of it, if it has parts) as layers use it, where that is not the variable:
  // gathered from shards, say.
  Weight whole;
  Shape global_shape;
  ShardSpec shard;
  Sharding sharding;                   // that `shard` follows from
  std::vector<ParameterPiece> pieces;  // tile the rows of the global tensor, in order
  Initializer initializer = Initializer::normal;
  float init_std = 0.02f;  // of normal and uniform values
  // Whether checkpoints hold it. A frozen weight under adapters comes back from where it came.
  bool in_checkpoints = true;
  // Belongs to an adapter: in adapter folders, not in those of models.
  bool adapter = false;
  // Scales of a weight's codes: optimizers move them by factors (optim/relative_steps.h), and take them for no matrix.
  bool scales = false;
  // Counts the changes of the value: what was derived from it (quantized copies) is good for one version.
  std::uint64_t version = 0;
  // f32 [], or undefined when nobody asked: largest magnitude of the value, kept up by the optimizer. It is that of
  // version amax_version.
  Tensor amax;
  std::uint64_t amax_version = 0;

  // For layers.
  [[nodiscard]] Weight weight() const { return whole.defined() ? whole : Weight(variable); }
  [[nodiscard]] std::int64_t numel() const { return global_shape.numel(); }
  // For whoever writes the value.
  void mark_changed() noexcept { ++version; }
};

// Where and in which types the parameters of a module are created.
struct ParameterOptions {
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  Device device;
  bool trainable = true;
  Sharding sharding;
  Sharding expert_sharding;  // of parameters that belong to experts
};

// A parameter that is not yet initialised: the rows that options.sharding gives this process; options.expert_sharding
// where they belong to `experts` experts.
[[nodiscard]] Parameter make_parameter(const Shape& shape, const ParameterOptions& options,
                                       Initializer initializer = Initializer::normal, float init_std = 0.02f,
                                       std::int64_t experts = 0);

// Shares out a parameter that is wholly on this process and has not been filled: it keeps its rows, uninitialised. For
// those that were made without options of the model's (a kernel's own). Before anybody holds its gradient.
void shard_parameter(Parameter& parameter, const Sharding& sharding);

}  // namespace quench::nn
