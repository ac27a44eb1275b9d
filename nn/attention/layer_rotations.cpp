#include "nn/attention/layer_rotations.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <map>

namespace quench::nn {
namespace {

// Mixtures of lengths alternate between micro-batches.
constexpr std::size_t kMostBuilt = 4;

// Rows of equal tables, one after the other.
RopeTable stacked(std::span<const RopeTable> parts) {
  if (parts.size() == 1 || !parts.front().cos.defined()) return parts.front();
  const MemoryScope scope(MemoryCategory::other);
  const auto stack = [&](Tensor RopeTable::*part) {
    const Tensor& first = parts.front().*part;
    const std::int64_t rows = first.size(0);
    const Tensor all = Tensor::empty({std::ssize(parts) * rows, first.size(1)}, first.dtype(), first.device());
    for (std::int64_t i = 0; i < std::ssize(parts) && !first.device().is_meta(); ++i)
      all.narrow(0, i * rows, rows).copy_from(parts[static_cast<std::size_t>(i)].*part);
    return all;
  };
  return {stack(&RopeTable::cos), stack(&RopeTable::sin)};
}

}  // namespace

LayerRotations::LayerRotations(const ModelConfig& config) {
  std::vector<BlockSpec> blocks = config.blocks;
  for (BlockSpec& block : config.mtp_blocks()) blocks.push_back(std::move(block));
  for (const BlockSpec& block : blocks) {
    const AttentionSpec& attention = block.attention;
    const Source source{attention.rotary, attention.temperature, attention.key_dim};
    const auto found = std::ranges::find(sources_, source);
    source_of_layer_.push_back(static_cast<std::size_t>(found - sources_.begin()));
    if (found == sources_.end()) sources_.push_back(source);
  }
}

LayerRotations::Lengths LayerRotations::effective_lengths(std::int64_t length) const {
  Lengths lengths;
  for (const Source& source : sources_)
    lengths.push_back(source.rotary ? rope_effective_length(*source.rotary, length) : 0);
  return lengths;
}

LayerRotations::Rows LayerRotations::rows(std::span<const SequenceRange> sequences, Device device) {
  std::int64_t longest = 0;
  std::map<Lengths, std::int64_t> needed;  // a length of each block
  for (const SequenceRange& s : sequences) {
    longest = std::max(longest, s.k_length);
    needed.try_emplace(effective_lengths(s.k_length), s.k_length);
  }
  if (needed.empty()) needed.emplace(effective_lengths(0), 0);
  std::vector<Lengths> blocks;
  std::vector<std::int64_t> lengths;
  for (const auto& [key, length] : needed) {
    blocks.push_back(key);
    lengths.push_back(length);
  }
  const auto found = std::ranges::find(built_, blocks, &Built::blocks);
  const Built& built =
      found != built_.end() && found->block_rows >= longest
          ? *found
          : build(std::move(blocks), lengths,
                  static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(longest))), device);
  Rows rows{.tables = built.tables};
  if (needed.size() > 1)
    for (const SequenceRange& s : sequences)
      rows.first.push_back(std::distance(needed.begin(), needed.find(effective_lengths(s.k_length))) *
                           built.block_rows);
  return rows;
}

const LayerRotations::Built& LayerRotations::build(std::vector<Lengths> blocks, std::span<const std::int64_t> lengths,
                                                   std::int64_t block_rows, Device device) {
  std::vector<RopeTable> distinct;
  for (const Source& source : sources_) {
    std::vector<RopeTable> parts;
    for (const std::int64_t length : lengths) {
      if (source.rotary)
        parts.push_back(make_rope_table(*source.rotary, block_rows, length, device));
      else if (source.temperature)
        parts.push_back(make_query_scales(*source.temperature, source.head_dim, block_rows, device));
      else
        parts.emplace_back();
    }
    distinct.push_back(stacked(parts));
  }
  LayerTables tables;
  for (const std::size_t source : source_of_layer_) tables.push_back(distinct[source]);
  std::erase_if(built_, [&](const Built& built) { return built.blocks == blocks; });
  if (built_.size() == kMostBuilt) built_.erase(built_.begin());
  return built_.emplace_back(std::move(blocks), block_rows, std::make_shared<const LayerTables>(std::move(tables)));
}

bool rotated_alike(const ModelConfig& config, std::int64_t length, std::int64_t other) {
  return std::ranges::all_of(config.blocks, [length, other](const BlockSpec& block) {
    const std::optional<RotarySpec>& rotary = block.attention.rotary;
    return !rotary || rope_effective_length(*rotary, length) == rope_effective_length(*rotary, other);
  });
}

bool cached_keys_change(const ModelConfig& config, std::int64_t from, std::int64_t to) {
  return std::ranges::any_of(config.blocks, [from, to](const BlockSpec& block) {
    const std::optional<RotarySpec>& rotary = block.attention.rotary;
    return rotary && rotary->scaling.type == RopeScaling::Type::longrope &&
           rope_effective_length(*rotary, from) != rope_effective_length(*rotary, to);
  });
}

std::int64_t longest_common_rotation(const ModelConfig& config) {
  std::int64_t longest = std::numeric_limits<std::int64_t>::max();
  for (const BlockSpec& block : config.blocks)
    if (const std::optional<RotarySpec>& rotary = block.attention.rotary)
      longest = std::min(longest, rope_longest_common(*rotary));
  return longest;
}

}  // namespace quench::nn
