#include "nn/modules/initialize.h"

#include <algorithm>
#include <cmath>

#include "core/ops/weights/random_fill.h"
#include "nn/modules/slice_map.h"

namespace quench::nn {
namespace {

// Not large: norms and biases.
void fill_ones(const Tensor& value) {
  const Tensor host = Tensor::empty(value.shape(), value.dtype());
  dispatch<float, bfloat16>(value.dtype(), "initialize_parameter",
                            [&]<class T>() { std::fill_n(host.data<T>(), host.numel(), T(1.0f)); });
  Tensor(value).copy_from(host);
}

}  // namespace

float residual_init_std(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0f * static_cast<float>(config.num_hidden_layers));
}

void initialize_parameter(Parameter& parameter, std::uint64_t seed) {
  parameter.mark_changed();
  const Tensor value = parameter.variable.value();
  if (value.device().is_meta()) return;
  switch (parameter.initializer) {
    case Initializer::zeros: Tensor(value).zero(); return;
    case Initializer::ones: fill_ones(value); return;
    case Initializer::normal:
    case Initializer::uniform: break;
  }
  const bool normal = parameter.initializer == Initializer::normal;
  const std::int64_t columns = parameter.global_shape.rank() > 1 ? parameter.numel() / parameter.global_shape[0] : 1;
  const std::int64_t shard_begin = parameter.shard.row_begin, shard_end = shard_begin + parameter.shard.rows;
  const Tensor flat = value.view({value.numel()});
  for (const ParameterPiece& piece : parameter.pieces) {
    const std::int64_t begin = std::max(piece.row_begin, shard_begin);
    const std::int64_t end = std::min(piece.row_begin + piece.rows, shard_end);
    if (begin >= end) continue;
    const std::int64_t first_row = first_row_of(parameter, piece) + begin - piece.row_begin;
    const auto fill = [&](const Tensor& out, std::int64_t first_element) {
      random_fill({.out = out,
                   .key = {seed, hash64(piece.hf_name), 0},
                   .first = static_cast<std::uint64_t>(first_element),
                   .distribution = normal ? RandomDistribution::normal : RandomDistribution::uniform,
                   .scale = normal ? parameter.init_std : parameter.init_std * std::sqrt(3.0f)});
    };
    if (parameter.slice.column_parts() == 1) {
      fill(flat.narrow(0, (begin - shard_begin) * columns, (end - begin) * columns), first_row * columns);
      continue;
    }
    fill_columns(parameter, value.narrow(0, begin - shard_begin, end - begin),
                 [&](const Tensor& whole, std::int64_t first) {
                   fill(whole.view({whole.numel()}), (first_row + first) * whole.size(1));
                 });
  }
}

}  // namespace quench::nn
