#pragma once

#include <memory>
#include <vector>

#include "nn/attention/rope_table.h"

namespace quench::nn {

// By layer. RoPE, or the query scales of a layer without (QueryTemperature), as cosines with zero sines; undefined:
// none.
using LayerTables = std::vector<RopeTable>;

// Position tables of a model's decoder and MTP layers. Layers of equal specs share one table.
class LayerRotations {
 public:
  explicit LayerRotations(const ModelConfig& config);

  // For positions below `longest` in sequences of at most `longest` keys. Sizes are powers of two, so that tables are
  // rarely rebuilt.
  [[nodiscard]] std::shared_ptr<const LayerTables> tables(std::int64_t longest, Device device);

 private:
  struct Source {
    std::optional<RotarySpec> rotary;
    std::optional<QueryTemperature> temperature;
    std::int64_t head_dim = 0;
    bool operator==(const Source&) const = default;
  };
  // Tables of equal effective lengths are equal.
  [[nodiscard]] std::vector<std::int64_t> effective_lengths(std::int64_t longest) const;

  std::vector<Source> sources_;  // distinct
  std::vector<std::size_t> source_of_layer_;
  std::shared_ptr<const LayerTables> tables_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> lengths_;
};

// True if a sequence that grows from `from` to `to` keys needs its cached keys again, as Transformers computes them:
// longrope beyond the original length.
[[nodiscard]] bool cached_keys_change(const ModelConfig& config, std::int64_t from, std::int64_t to);

// False if tables for sequences of `length` keys are those of shorter ones.
[[nodiscard]] bool rotations_depend_on_length(const ModelConfig& config, std::int64_t length);

}  // namespace quench::nn
