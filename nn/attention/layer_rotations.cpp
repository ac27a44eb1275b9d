#include "nn/attention/layer_rotations.h"

#include <algorithm>
#include <bit>

namespace quench::nn {

LayerRotations::LayerRotations(const ModelConfig& config) {
  std::vector<BlockSpec> blocks = config.blocks();
  for (BlockSpec& block : config.mtp_blocks()) blocks.push_back(std::move(block));
  for (const BlockSpec& block : blocks) {
    const AttentionSpec& attention = block.attention;
    const Source source{attention.rotary, attention.temperature, attention.key_dim};
    const auto found = std::ranges::find(sources_, source);
    source_of_layer_.push_back(static_cast<std::size_t>(found - sources_.begin()));
    if (found == sources_.end()) sources_.push_back(source);
  }
}

std::vector<std::int64_t> LayerRotations::effective_lengths(std::int64_t longest) const {
  std::vector<std::int64_t> lengths;
  for (const Source& source : sources_)
    lengths.push_back(source.rotary ? rope_effective_length(*source.rotary, longest) : 0);
  return lengths;
}

std::shared_ptr<const LayerTables> LayerRotations::tables(std::int64_t longest, Device device) {
  std::vector<std::int64_t> lengths = effective_lengths(longest);
  if (tables_ != nullptr && rows_ >= longest && lengths_ == lengths) return tables_;
  const auto rows = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(longest)));
  std::vector<RopeTable> distinct;
  for (const Source& source : sources_) {
    if (source.rotary)
      distinct.push_back(make_rope_table(*source.rotary, rows, longest, device));
    else if (source.temperature)
      distinct.push_back(make_query_scales(*source.temperature, source.head_dim, rows, device));
    else
      distinct.emplace_back();
  }
  LayerTables tables;
  for (const std::size_t source : source_of_layer_) tables.push_back(distinct[source]);
  tables_ = std::make_shared<const LayerTables>(std::move(tables));
  rows_ = rows;
  lengths_ = std::move(lengths);
  return tables_;
}

bool cached_keys_change(const ModelConfig& config, std::int64_t from, std::int64_t to) {
  return std::ranges::any_of(config.blocks(), [from, to](const BlockSpec& block) {
    const std::optional<RotarySpec>& rotary = block.attention.rotary;
    return rotary && rotary->scaling.type == RopeScaling::Type::longrope &&
           rope_effective_length(*rotary, from) != rope_effective_length(*rotary, to);
  });
}

bool rotations_depend_on_length(const ModelConfig& config, std::int64_t length) {
  return std::ranges::any_of(config.blocks(), [length](const BlockSpec& block) {
    const std::optional<RotarySpec>& rotary = block.attention.rotary;
    return rotary && rope_effective_length(*rotary, length) != rope_effective_length(*rotary, 1);
  });
}

}  // namespace quench::nn
