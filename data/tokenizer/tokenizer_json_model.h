#pragma once
// Model of a tokenizer.json: vocabulary, algorithm.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json/json.h"
#include "core/system/choice_table.h"
#include "data/tokenizer/model/token_model.h"

namespace quench {

using Vocabulary = std::unordered_map<std::string_view, std::int32_t>;  // text as in the file, to id

// Throws corrupt.
[[nodiscard]] std::int32_t read_token_id(const Json& value);

// Model type.
struct TokenModelKind {
  std::string_view name;
  // As read_token_model().
  std::unique_ptr<TokenModel> (*read)(const Json& model, bool byte_level, Vocabulary& vocabulary,
                                      std::vector<std::string>& tokens);
  bool takes_byte_level = false;  // tokens may be in the byte alphabet
  std::string_view own_key{};     // if "type" is absent; or empty
};
[[nodiscard]] const ChoiceTable<TokenModelKind>& token_model_kinds();

// Over bytes in the byte alphabet or characters. Fills the vocabulary (views into `model`), and the tokens by id.
// Throws as read_tokenizer_json.
[[nodiscard]] std::unique_ptr<TokenModel> read_token_model(const Json& model, bool byte_level, Vocabulary& vocabulary,
                                                           std::vector<std::string>& tokens);

}  // namespace quench
