#pragma once
// Reads the model of a tokenizer.json: its vocabulary and how text becomes tokens of it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json/json.h"
#include "data/tokenizer/model/token_model.h"

namespace quench {

using Vocabulary = std::unordered_map<std::string_view, std::int32_t>;  // text as written in the file, to id

// Throws corrupt unless the value is an id.
[[nodiscard]] std::int32_t read_token_id(const Json& value);

// BPE, over bytes written in the byte alphabet or over characters, and Unigram, over characters. Fills the vocabulary,
// whose texts lie in `model`, and the tokens by id. Throws as read_tokenizer_json does.
[[nodiscard]] std::unique_ptr<TokenModel> read_token_model(const Json& model, bool byte_level, Vocabulary& vocabulary,
                                                           std::vector<std::string>& tokens);

}  // namespace quench
