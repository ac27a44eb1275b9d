#pragma once
// llm.c token files (karpathy/llm.c, dev/data/data_common.py): 256 int32 of header, of which [0] is the magic, [1] the
// version and [2] the token count, then the tokens: magic 20240520 version 1 holds u16, 20240801 version 7 holds u32.

#include "data/formats/token_layout.h"

namespace quench {

inline constexpr std::int32_t kLlmcMagicU16 = 20240520;
inline constexpr std::int32_t kLlmcMagicU32 = 20240801;
inline constexpr std::int32_t kLlmcEvalMagic = 20240522;  // multiple-choice evaluation data, not a token stream

// Throws corrupt (wrong magic or count, or a file size that the count does not explain) or unsupported (version).
[[nodiscard]] TokenLayout read_llmc_layout(const BinaryFile& file);

}  // namespace quench
