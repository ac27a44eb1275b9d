#pragma once
// Settings of a SentencePiece model that its library does not tell. Source: sentencepiece_model.proto, and the encoding
// of Protocol Buffers.

#include <string_view>

namespace quench {

struct SentencePieceSettings {
  bool bpe = false;              // else of another type, such as unigram
  bool normalizes = false;       // replaces characters, by precompiled_charsmap
  bool dummy_prefix = true;      // add_dummy_prefix
  bool collapses_spaces = true;  // remove_extra_whitespaces
};

// `model` is a serialized ModelProto that the library has loaded. Throws corrupt.
[[nodiscard]] SentencePieceSettings read_sentence_piece_settings(std::string_view model);

}  // namespace quench
