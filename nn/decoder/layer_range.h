#pragma once
// Ranges of decoder layers: the chunks of a model that a pipeline stage holds.

#include <cstdint>

namespace quench::nn {

// Layers [begin, end).
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const noexcept { return end - begin; }
  [[nodiscard]] bool contains(std::int64_t layer) const noexcept { return begin <= layer && layer < end; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

}  // namespace quench::nn
