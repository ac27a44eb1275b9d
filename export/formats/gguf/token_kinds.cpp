#include "export/formats/gguf/token_kinds.h"

namespace quench {

bool is_piece_of_spaces(std::string_view text) {
  while (text.starts_with(kPieceSpace)) text.remove_prefix(kPieceSpace.size());
  return text.empty();
}

const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers() {
  static const std::vector<GgufPreTokenizer> known = {
      {{"llama3"}, {"llama-bpe", "llama3", "llama-v3", "pixtral"}, true, true},
      {{"qwen2"}, {"qwen2", "deepseek-r1-qwen"}},
      {{"gpt2"}, {"gpt-2"}},
      {{"tekken"}, {"tekken"}, true, true},
      {{"o200k"}, {"gpt-4o", "llama4"}},
      {{"qwen3.5"}, {"qwen35"}},
      {{"individual_digits", "gpt2"}, {"smollm"}},
      {{"digit_groups", "han_kana", "deepseek_v3"}, {"deepseek-v3"}},
  };
  return known;
}

}  // namespace quench
