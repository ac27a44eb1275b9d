#pragma once
// Trainable tensor.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autograd/weight.h"
#include "nn/modules/tensor_slice.h"

namespace quench::nn {

using autograd::Variable;
using autograd::Weight;

// Local rows of axis 0 of the global tensor.
struct ShardSpec {
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
};

// Row sharding. Rows form `parts` equal parts (`parts` divides them): one, or the expert-parallel parts of expert
// parameters. `count` ranks shard a part: rank i has its rows from i * chunk, chunk = rows of the part / count rounded
// up. The last ranks may have fewer, or none.
struct Sharding {
  std::int64_t index = 0;
  std::int64_t count = 1;
  std::int64_t part = 0;
  std::int64_t parts = 1;

  [[nodiscard]] bool is_whole() const noexcept { return count == 1 && parts == 1; }
  // This rank's part of `rows` rows: the result of an all-gather.
  [[nodiscard]] ShardSpec region(std::int64_t rows) const noexcept { return {part * (rows / parts), rows / parts}; }
  [[nodiscard]] std::int64_t chunk(std::int64_t rows) const noexcept { return (rows / parts + count - 1) / count; }
  [[nodiscard]] ShardSpec of(std::int64_t rows) const noexcept;
};

// Rows under their Hugging Face name; of a tensor-parallel slice, this rank's rows of it.
struct ParameterPiece {
  std::string hf_name;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
};

// Distribution of initial values.
enum class Initializer { normal, uniform, ones, zeros };

struct Parameter {
  std::string name;   // full path in the module tree: "model.layers.0.self_attn.qkv_proj.weight"
  Variable variable;  // the local shard, updated by the optimizer; no gradient when frozen
  // Shard zero-padded to the largest shard's rows, for collectives. Undefined if one rank holds all rows of its part.
  Tensor padded;
  // Number of experts with equal consecutive row ranges; 0: no expert parameter. Expert parameters may be sharded by
  // expert.
  std::int64_t experts = 0;
  // The parameter as layers read it, if not the variable: e.g. all-gathered.
  Weight whole;
  Shape global_shape;  // all rows; the slice's, if tensor-parallel ranks split the weight
  TensorSlice slice;
  ShardSpec shard;
  Sharding sharding;                   // determines `shard`
  std::vector<ParameterPiece> pieces;  // cover the global rows, in order
  Initializer initializer = Initializer::normal;
  float init_std = 0.02f;  // standard deviation of normal and uniform values
  // By training.freeze or training.train: no update of any kind. Parameters without gradient need not be frozen.
  bool frozen = false;
  // False for frozen weights under adapters.
  bool in_checkpoints = true;
  // Saved in adapter folders, not in model folders.
  bool adapter = false;
  // Not of the model's architecture, such as a head that a training objective adds: model folders may lack it.
  bool added = false;
  // A pipeline stage's copy of a tied table: the stage that embeds has the same values, counts and saves them.
  bool stage_copy = false;
  // Learned quantization scales; never treated as a matrix.
  bool scales = false;
  // Derived data is valid for one version.
  std::uint64_t version = 0;
  // f32 [] amax at amax_version, maintained by the optimizer on request.
  Tensor amax;
  std::uint64_t amax_version = 0;

  [[nodiscard]] Weight weight() const { return whole.defined() ? whole : Weight(variable); }
  [[nodiscard]] std::int64_t numel() const { return global_shape.numel(); }
  // Values that another rank has too and counts.
  [[nodiscard]] bool is_copy() const noexcept { return stage_copy || slice.is_copy(); }
  // After writing the value.
  void mark_changed() noexcept { ++version; }
};

// Dtypes, device and sharding of new parameters.
struct ParameterOptions {
  DType dtype = DType::f32;
  DType grad_dtype = DType::f32;
  Device device;
  bool trainable = true;
  Sharding sharding{};
  Sharding expert_sharding{};  // for expert parameters
  TensorPlace tensor{};
  // Values of unsharded parameters are empty until materialize(). Not kept in the options of layers and models.
  bool deferred = false;
};

// Uninitialised; sharded by options.expert_sharding if `experts` is not 0.
[[nodiscard]] Parameter make_parameter(const Shape& shape, const ParameterOptions& options,
                                       Initializer initializer = Initializer::normal, float init_std = 0.02f,
                                       std::int64_t experts = 0);

// Allocates a deferred value, uninitialised; no-op for others.
void materialize(Parameter& parameter);
// Called for each parameter, in module order, once it has its values.
using ParameterFilled = std::function<void(Parameter&)>;

// Shards an unfilled whole parameter: keeps the local rows, uninitialised. Call before any use of its gradient.
void shard_parameter(Parameter& parameter, const Sharding& sharding);

}  // namespace quench::nn
