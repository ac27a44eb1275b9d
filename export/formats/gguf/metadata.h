#pragma once
// GGUF header (docs/gguf.md of ggml, version 3, little-endian).

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace quench {

inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::uint64_t kGgufAlignment = 32;  // multiple of tensor offsets, default
inline constexpr std::size_t kGgufMaxName = 63;

// Written types: integers u32 or i32, reals f32. Readers hold integers in 64 bits.
using GgufValue = std::variant<bool, std::uint32_t, std::int32_t, float, std::string, std::vector<std::string>,
                               std::vector<std::int32_t>, std::vector<float>>;

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> dimensions;  // fastest first
  std::uint32_t type = 0;                 // ggml type
  std::uint64_t bytes = 0;
};

// Padded to the alignment, as each tensor, in this order. Throws unsupported for a name that readers reject.
[[nodiscard]] std::string gguf_head(const std::vector<std::pair<std::string, GgufValue>>& metadata,
                                    std::span<const GgufTensor> tensors);

[[nodiscard]] constexpr std::uint64_t gguf_padded(std::uint64_t bytes, std::uint64_t alignment = kGgufAlignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace quench
