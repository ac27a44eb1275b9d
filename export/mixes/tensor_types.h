#pragma once
// Types of a file's tensors under a mix.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/mixes/mix.h"

namespace quench {

// A matrix of the file, or the experts' matrices of one projection.
struct MixTensor {
  std::string name;          // GGUF: "blk.0.attn_v.weight"
  std::int64_t columns = 0;  // width of its rows
};

// Sizes that rules ask for.
struct MixModel {
  std::int64_t layers = 0;
  std::int64_t heads_per_key_head = 1;  // query heads
  std::int64_t experts = 0;             // 0: none
  bool wide_values = false;             // family of the 80-layer exception (GgufMix::exceptions)
};

// ggml's type names in the order of `tensors`, before fallbacks (fitting_type()). Without output.weight the table is
// the head.
[[nodiscard]] std::vector<std::string_view> mix_types(const GgufMix& mix, std::span<const MixTensor> tensors,
                                                      const MixModel& model, bool has_matrix);

// Type that takes the place of `type`, whose blocks of 256 do not divide the width; empty: none.
[[nodiscard]] std::string_view fallback_type(std::string_view type);

// llama.cpp refuses to write the tensor in this type without an importance matrix.
[[nodiscard]] bool needs_matrix(const GgufMix& mix, std::string_view tensor, std::string_view type);

// By GGUF name; a table that is the head: TensorRole::table.
[[nodiscard]] TensorRole role_of_tensor(std::string_view name);

}  // namespace quench
