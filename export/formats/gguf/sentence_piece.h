#pragma once
// Settings that the SentencePiece library does not expose (sentencepiece_model.proto).

#include <cstdint>
#include <string_view>
#include <vector>

namespace quench {

struct SentencePieceSettings {
  bool bpe = false;                        // false: unigram or others
  bool normalizes = false;                 // by precompiled_charsmap
  bool dummy_prefix = true;                // add_dummy_prefix
  bool collapses_spaces = true;            // remove_extra_whitespaces
  bool space_suffix = false;               // treat_whitespace_as_suffix
  std::vector<std::int32_t> user_defined;  // ids of pieces of type USER_DEFINED
};

// `model`: ModelProto that the library has loaded. Throws corrupt.
[[nodiscard]] SentencePieceSettings read_sentence_piece_settings(std::string_view model);

}  // namespace quench
