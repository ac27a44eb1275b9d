#include "distributed/pipeline/stage_layers.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/system/check.h"

namespace quench::distributed {
namespace {

// Update of a weight, in its FLOPs of a token: it passes memory once a step.
constexpr double kUpdateShare = 0.0625;

}  // namespace

std::vector<std::int64_t> balanced_layers(const nn::ModelConfig& model, std::int64_t seq_len, std::int64_t parts) {
  const std::int64_t layers = model.num_hidden_layers;
  QUENCH_CHECK(parts >= 1 && parts <= layers, "pipeline: {} layers in {} parts", layers, parts);
  const auto flops = [&](std::span<const nn::BlockSpec> blocks) {
    nn::ModelConfig some = model;
    some.mtp.layers = 0;
    some.blocks.assign(blocks.begin(), blocks.end());
    return some.training_flops_per_token(seq_len);
  };
  const double head = flops({});
  // Sums of the first layers.
  std::vector<double> sums{0};
  for (std::size_t i = 0; i < model.blocks.size(); ++i)
    sums.push_back(sums.back() + flops(std::span(model.blocks).subspan(i, 1)) - head);
  const auto cost = [&](std::int64_t begin, std::int64_t end) {
    return sums[static_cast<std::size_t>(end)] - sums[static_cast<std::size_t>(begin)] +
           (begin == 0 ? kUpdateShare * head : 0) + (end == layers ? head : 0);
  };
  // least[p][n]: largest cost of a part, of the first n layers in p parts.
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const auto size = static_cast<std::size_t>(layers) + 1;
  std::vector<double> least(size, kNever);
  least[0] = 0;
  std::vector<std::vector<std::int64_t>> begins;
  for (std::int64_t part = 1; part <= parts; ++part) {
    std::vector<double> next(size, kNever);
    std::vector<std::int64_t>& begin_of = begins.emplace_back(size);
    for (std::int64_t end = part; end <= layers - (parts - part); ++end)
      for (std::int64_t begin = part - 1; begin < end; ++begin) {
        const double largest = std::max(least[static_cast<std::size_t>(begin)], cost(begin, end));
        if (largest >= next[static_cast<std::size_t>(end)]) continue;
        next[static_cast<std::size_t>(end)] = largest;
        begin_of[static_cast<std::size_t>(end)] = begin;
      }
    least = std::move(next);
  }
  std::vector<std::int64_t> result(static_cast<std::size_t>(parts));
  std::int64_t end = layers;
  for (std::size_t part = result.size(); part-- > 0;) {
    const std::int64_t begin = begins[part][static_cast<std::size_t>(end)];
    result[part] = end - begin;
    end = begin;
  }
  return result;
}

std::vector<nn::LayerRange> stage_chunks(std::span<const std::int64_t> layers, const PipelinePlace& place) {
  QUENCH_CHECK(std::ssize(layers) == std::int64_t{place.stages} * place.chunks,
               "pipeline: layers of {} parts for {} x {}", layers.size(), place.stages, place.chunks);
  std::vector<nn::LayerRange> chunks;
  for (int chunk = 0; chunk < place.chunks; ++chunk) {
    const auto part = static_cast<std::size_t>(chunk * place.stages + place.stage);
    const std::int64_t begin =
        std::accumulate(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(part), std::int64_t{0});
    chunks.push_back({begin, begin + layers[part]});
  }
  return chunks;
}

}  // namespace quench::distributed
