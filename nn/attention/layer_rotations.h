#pragma once
// Rotation tables of the layers of a model, for sequences of any lengths in one pass.

#include <memory>
#include <span>
#include <vector>

#include "core/ops/attention.h"
#include "nn/modules/rope_table.h"

namespace quench::nn {

// Position tables of a model's decoder and MTP layers. Layers of equal specs share one table.
class LayerRotations {
 public:
  explicit LayerRotations(const ModelConfig& config);

  struct Rows {
    std::shared_ptr<const LayerTables> tables;
    // By sequence: row of its position 0. Empty: 0 for each, as for models whose rotations do not depend on the length.
    std::vector<std::int64_t> first;
  };
  // For positions below SequenceRange::k_length. Every sequence is rotated by its own length, whatever other sequences
  // the call has: sequences of equal effective lengths share a block of rows, and the blocks of a table follow each
  // other. Block sizes are powers of two, so that tables are rarely rebuilt.
  [[nodiscard]] Rows rows(std::span<const SequenceRange> sequences, Device device);

 private:
  struct Source {
    std::optional<RotarySpec> rotary;
    std::optional<QueryTemperature> temperature;
    std::int64_t head_dim = 0;
    bool operator==(const Source&) const = default;
  };
  using Lengths = std::vector<std::int64_t>;  // by source: tables of equal effective lengths are equal
  struct Built {
    std::vector<Lengths> blocks;
    std::int64_t block_rows = 0;
    std::shared_ptr<const LayerTables> tables;
  };
  [[nodiscard]] Lengths effective_lengths(std::int64_t length) const;
  [[nodiscard]] const Built& build(std::vector<Lengths> blocks, std::span<const std::int64_t> lengths,
                                   std::int64_t block_rows, Device device);

  std::vector<Source> sources_;  // distinct
  std::vector<std::size_t> source_of_layer_;
  std::vector<Built> built_;  // the latest last
};

// True if a sequence that grows from `from` to `to` keys needs its cached keys again, as Transformers computes them:
// longrope beyond the original length.
[[nodiscard]] bool cached_keys_change(const ModelConfig& config, std::int64_t from, std::int64_t to);

// Longest sequence that is rotated as all shorter ones: the original length of longrope, max_position_embeddings of
// dynamic scaling, else no bound (the largest int64).
[[nodiscard]] std::int64_t longest_common_rotation(const ModelConfig& config);

// True if equal positions of sequences of these lengths are rotated alike in every layer.
[[nodiscard]] bool rotated_alike(const ModelConfig& config, std::int64_t length, std::int64_t other);

// False if tables for sequences of `length` keys are those of shorter ones.
[[nodiscard]] inline bool rotations_depend_on_length(const ModelConfig& config, std::int64_t length) {
  return length > longest_common_rotation(config);
}

}  // namespace quench::nn
