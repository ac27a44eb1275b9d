#include "export/formats/gguf/special_tokens.h"

#include <algorithm>
#include <array>

#include "core/json/json.h"
#include "core/json/json_member.h"
#include "core/system/log.h"
#include "data/tokenizer/tokenizer_files.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int64_t>;

// Where llama.cpp stops without a key; end-of-turn texts first.
constexpr std::array<std::string_view, 16> kEndsByText = {
    "<|eot_id|>",      "<|im_end|>",    "<end_of_turn>",   "<|end|>", "<|eot|>", "<EOT>", "_<EOT>",     "[EOT]",
    "<|end_of_turn|>", "<|endoftext|>", "<|end_of_text|>", "</s>",    "<eos>",   "[EOS]", "<|return|>", "<|call|>"};
constexpr std::size_t kTurnEnds = 9;  // end-of-turn texts
constexpr std::string_view kEndOfMessage = "<|eom_id|>";

void add(Ids& ids, std::int64_t id) {
  if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
}

// config.json's, then generation_config.json's.
Ids ends_of_model(const fs::path& folder, const nn::ModelConfig& config) {
  Ids ids = config.eos_token_ids;
  const fs::path file = folder / "generation_config.json";
  if (!fs::is_regular_file(file)) return ids;
  const Json json = Json::parse_file(file, {.max_bytes = std::size_t{16} << 20});
  const Json* ends = find_member(json, {"eos_token_id"});
  const auto take = [&](const Json& id) {
    if (id.is_integer() && id.as_double() >= 0 && id.as_double() < static_cast<double>(config.vocab_size))
      add(ids, id.as_int());
  };
  if (ends != nullptr && ends->is_array())
    std::ranges::for_each(ends->as_array(), take);
  else if (ends != nullptr)
    take(*ends);
  return ids;
}

std::string text_of(const Tokenizer& tokenizer, std::int64_t id) {
  return id < tokenizer.vocab_size() ? tokenizer.token_text(static_cast<std::int32_t>(id)) : std::string();
}

// Among llama.cpp's texts; their count for others.
std::size_t place(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::find(kEndsByText, text) - kEndsByText.begin());
}

// Other than eos: eom by text; eot: the first end-of-turn text, else the first.
void add_other_ends(const Tokenizer& tokenizer, Ids others, GgufSpecialTokens& tokens) {
  const auto message =
      std::ranges::find_if(others, [&](std::int64_t id) { return text_of(tokenizer, id) == kEndOfMessage; });
  if (message != others.end()) {
    tokens.eom = *message;
    others.erase(message);
  }
  if (others.empty()) return;
  const auto turn = std::ranges::min_element(
      others, {}, [&](std::int64_t id) { return std::min(place(text_of(tokenizer, id)), kTurnEnds); });
  tokens.eot = *turn;
  others.erase(turn);
  for (const std::int64_t id : others)
    if (const std::string text = text_of(tokenizer, id); place(text) == kEndsByText.size())
      QUENCH_LOG_WARN(
          "GGUF has keys for one eos, one eot and one eom token; {} {} ends a text too, and llama.cpp will "
          "not stop at it",
          id, Json(text).dump());
}

}  // namespace

GgufSpecialTokens gguf_special_tokens(const fs::path& folder, const Tokenizer& tokenizer,
                                      const nn::ModelConfig& config) {
  const fs::path json = folder / "tokenizer.json";
  const TokenizerFiles files = TokenizerFiles::read(fs::exists(json) ? json : folder / "tokenizer.model");
  const TokenizerSettings& settings = files.settings();
  // The tokenizer's (named in its files or added to texts), the model's, the vocabulary's suggestion.
  const auto choose = [](bool named, std::optional<std::int32_t> own, std::optional<std::int64_t> of_model) {
    return own && (named || !of_model) ? std::optional<std::int64_t>(*own) : of_model;
  };
  const std::vector<std::int32_t> text = tokenizer.encode("a");
  const bool begins = !text.empty() && tokenizer.bos_id() == text.front();
  const bool ends = !text.empty() && tokenizer.eos_id() == text.back();
  Ids model = ends_of_model(folder, config);
  GgufSpecialTokens tokens;
  tokens.bos = choose(begins || settings.bos_token.has_value(), tokenizer.bos_id(), config.bos_token_id);
  tokens.eos = choose(ends || settings.eos_token.has_value(), tokenizer.eos_id(),
                      model.empty() ? std::nullopt : std::optional(model.front()));
  tokens.pad = choose(settings.pad_token.has_value(), tokenizer.pad_id(), config.pad_token_id);
  std::erase(model, tokens.eos.value_or(-1));
  add_other_ends(tokenizer, std::move(model), tokens);
  return tokens;
}

}  // namespace quench
