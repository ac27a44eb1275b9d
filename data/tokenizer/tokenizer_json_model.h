#pragma once
// Reads the model of a tokenizer.json: its vocabulary and how text becomes tokens of it.

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

using Vocabulary = std::unordered_map<std::string_view, std::int32_t>;  // text as written in the file, to id

// Throws corrupt unless the value is an id.
[[nodiscard]] std::int32_t read_token_id(const Json& value);

// How text becomes tokens: the types of model in tokenizer.json, as a table.
struct TokenModelKind {
  std::string_view name;  // the model's "type"
  // As read_token_model().
  std::unique_ptr<TokenModel> (*read)(const Json& model, bool byte_level, Vocabulary& vocabulary,
                                      std::vector<std::string>& tokens);
  bool takes_byte_level = false;  // its tokens may be bytes written in the byte alphabet
  std::string_view own_key{};     // which tells the type where the file leaves it out; empty: nothing does
};
[[nodiscard]] const ChoiceTable<TokenModelKind>& token_model_kinds();

// Reads the model of a tokenizer.json over bytes written in the byte alphabet, or over characters. Fills the
// vocabulary, whose texts lie in `model`, and the tokens by id. Throws as read_tokenizer_json does.
[[nodiscard]] std::unique_ptr<TokenModel> read_token_model(const Json& model, bool byte_level, Vocabulary& vocabulary,
                                                           std::vector<std::string>& tokens);

}  // namespace quench
