#pragma once
// llm.c (karpathy/llm.c, dev/data/data_common.py): 256 int32 ([0] magic, [1] version, [2] token count), then tokens.
// Magic 20240520 version 1: u16; 20240801 version 7: u32.

#include "data/formats/token_layout.h"

namespace quench {

inline constexpr std::int32_t kLlmcMagicU16 = 20240520;
inline constexpr std::int32_t kLlmcMagicU32 = 20240801;
inline constexpr std::int32_t kLlmcEvalMagic = 20240522;  // multiple-choice data, not tokens

// Throws corrupt (magic, count, size) or unsupported (version).
[[nodiscard]] TokenLayout read_llmc_layout(const BinaryFile& file);

}  // namespace quench
