#pragma once
// What GGUF metadata call tokens and ways to split text.

#include <cstdint>
#include <string_view>
#include <vector>

namespace quench {

// tokenizer.ggml.token_type
enum TokenKind : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct GgufPreTokenizer {
  std::vector<std::string_view> patterns;  // data/tokenizer/text/published_patterns.h, one after the other
  std::vector<std::string_view> names;     // tokenizer.ggml.pre; the first is written
  bool ignores_merges = false;             // a piece that is a token becomes that token
  bool begins = false;                     // with the begin token, where no tokenizer.ggml.add_bos_token says otherwise
};

// The ways to split text that llama.cpp and we have.
[[nodiscard]] const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers();

}  // namespace quench
