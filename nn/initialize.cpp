#include "nn/initialize.h"

#include <algorithm>
#include <cmath>

#include "core/number/random.h"
#include "core/ops/elementwise.h"

namespace quench::nn {

float residual_init_std(const ModelConfig& config) {
  return config.initializer_range / std::sqrt(2.0f * static_cast<float>(config.num_hidden_layers));
}

void initialize_parameter(Parameter& parameter, std::uint64_t seed) {
  parameter.mark_changed();
  Tensor value = parameter.variable.value();
  if (value.device().is_meta()) return;
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor host =
      value.device().is_cpu() && value.dtype() == DType::f32 ? value : Tensor::empty(value.shape(), DType::f32);
  float* out = host.data<float>();
  const std::int64_t columns = parameter.global_shape.rank() > 1 ? parameter.numel() / parameter.global_shape[0] : 1;
  const std::int64_t shard_begin = parameter.shard.row_begin, shard_end = shard_begin + parameter.shard.rows;
  for (const ParameterPiece& piece : parameter.pieces) {
    const RandomKey key{seed, hash64(piece.hf_name), 0};
    const std::int64_t begin = std::max(piece.row_begin, shard_begin);
    const std::int64_t end = std::min(piece.row_begin + piece.rows, shard_end);
#pragma omp parallel for schedule(static) if ((end - begin) * columns > 16384)
    for (std::int64_t row = begin; row < end; ++row) {
      float* line = out + (row - shard_begin) * columns;
      for (std::int64_t c = 0; c < columns; ++c) {
        switch (parameter.initializer) {
          case Initializer::ones: line[c] = 1.0f; break;
          case Initializer::zeros: line[c] = 0.0f; break;
          case Initializer::uniform: {
            const auto element = static_cast<std::uint64_t>((row - piece.row_begin) * columns + c);
            line[c] = parameter.init_std * std::sqrt(3.0f) * (2.0f * to_uniform(random_word(key, element)) - 1.0f);
            break;
          }
          case Initializer::normal:
            line[c] = parameter.init_std *
                      random_normal(key, static_cast<std::uint64_t>((row - piece.row_begin) * columns + c));
            break;
        }
      }
    }
  }
  if (host.storage() == value.storage()) return;
  if (value.dtype() == DType::f32) {
    value.copy_from(host);
    return;
  }
  Tensor rounded = Tensor::empty(value.shape(), value.dtype());
  cast({host, rounded});
  value.copy_from(rounded);
}

}  // namespace quench::nn
