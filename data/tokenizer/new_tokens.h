#pragma once
// Tokens added to a tokenizer's files, as Transformers' add_tokens() and save_pretrained() store them.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace quench {

// Names of the begin, end and padding tokens, for a missing tokenizer_config.json.
struct NamedTokens {
  std::optional<std::string> bos, eos, pad;
};

[[nodiscard]] NamedTokens named_tokens(const Tokenizer& tokenizer);

// Throws bad_config unless `token` makes an added token, `special` or not, special.
void require_changed(const NewToken& token, std::int64_t id, bool special);

// New tokens of tokenizer.json: added_tokens, with ids that follow the vocabulary; tokenizer_config.json (made if
// absent), special_tokens_map.json and added_tokens.json, if present. Throws bad_config naming the text: empty, longer
// than AddedTokens::kMaxContent, listed twice, or an added token already; with its id.
[[nodiscard]] TokenizerFiles with_new_json_tokens(const TokenizerFiles& files, std::span<const NewToken> tokens,
                                                  const NamedTokens& names);

// New tokens of tokenizer.model: in tokenizer_config.json. `piece_id`: of a piece in the file's spelling. `vocab_size`:
// highest id + 1.
[[nodiscard]] TokenizerFiles with_new_piece_tokens(
    const TokenizerFiles& files, std::span<const NewToken> tokens, const NamedTokens& names,
    const std::function<std::optional<std::int32_t>(const std::string&)>& piece_id, std::int64_t vocab_size);

}  // namespace quench
