#pragma once
// Settings of a SentencePiece model not exposed by its library. Source: sentencepiece_model.proto, Protocol Buffers
// encoding.

#include <string_view>

namespace quench {

struct SentencePieceSettings {
  bool bpe = false;              // false: unigram or another type
  bool normalizes = false;       // applies precompiled_charsmap
  bool dummy_prefix = true;      // add_dummy_prefix
  bool collapses_spaces = true;  // remove_extra_whitespaces
};

// `model`: a serialized ModelProto that the library has loaded. Throws corrupt.
[[nodiscard]] SentencePieceSettings read_sentence_piece_settings(std::string_view model);

}  // namespace quench
