#pragma once
// Offset, dtype and metadata, from a header reader.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/number/dtype.h"
#include "data/formats/binary_file.h"

namespace quench {

struct TokenLayout {
  DType element = DType::u16;     // u8, i8, u16, i16, u32, i32, u64 or i64
  std::uint64_t data_offset = 0;  // bytes
  std::uint64_t token_count = 0;  // > 0; the tokens are within the file
  std::uint64_t vocab_size = 0;   // 0: not stored
  std::optional<std::int32_t> eos_id;
  std::string tokenizer_fingerprint;  // or empty

  // Documents, at most one of: exclusive ends, strictly increasing, the last equal to token_count; fixed length; i32
  // position id per token, 0 at a document start.
  std::vector<std::uint64_t> document_ends;
  std::uint64_t document_length = 0;
  std::optional<std::uint64_t> positions_offset;

  // One bit per token, least significant first. Bit i: token i may be a target; with mask_at_input, token i + 1.
  std::optional<std::uint64_t> mask_offset;
  bool mask_at_input = false;
};

}  // namespace quench
