#pragma once
// Where the tokens of a file are and what the file says about them: what every header reader returns.

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
  std::uint64_t token_count = 0;  // > 0; data_offset + token_count * element size is within the file
  std::uint64_t vocab_size = 0;   // 0: the file does not say
  std::optional<std::int32_t> eos_id;
  std::string tokenizer_fingerprint;  // empty: the file does not say

  // Documents, at most one of: the end (exclusive) of each, strictly increasing, the last equal to token_count; a fixed
  // length; or a position id (i32) for each token that is 0 where a document starts.
  std::vector<std::uint64_t> document_ends;
  std::uint64_t document_length = 0;
  std::optional<std::uint64_t> positions_offset;

  // One bit a token, least significant first. With mask_at_input false, bit i says whether token i may be a target;
  // with true, whether the token after token i may.
  std::optional<std::uint64_t> mask_offset;
  bool mask_at_input = false;
};

}  // namespace quench
