#include "data/tokenizer/new_tokens.h"

#include <algorithm>

#include "data/tokenizer/text/json_fields.h"

namespace quench {
namespace {

constexpr std::string_view kSettings = "tokenizer_config.json", kTokensMap = "special_tokens_map.json",
                           kLegacyTokens = "added_tokens.json";

using Files = std::vector<std::pair<std::string, std::string>>;

std::string* find_file(Files& files, std::string_view name) {
  const auto file = std::ranges::find(files, name, [](const auto& f) -> std::string_view { return f.first; });
  return file == files.end() ? nullptr : &file->second;
}

Json parsed(const TokenizerFiles& files, std::string_view name, const std::string& text) {
  return Json::parse(text, {.max_bytes = TokenizerFiles::kMaxVocabularyBytes,
                            .source = name == files.files().front().first ? std::string_view(files.source()) : name});
}

void require_new(std::span<const NewToken> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string& text = tokens[i].text;
    QUENCH_CHECK_AS(ErrorCode::bad_config, !text.empty(), "token {} of the list is empty", i + 1);
    QUENCH_CHECK_AS(ErrorCode::bad_config, text.size() <= AddedTokens::kMaxContent,
                    "\"{}\" has {} bytes; an added token has at most {}", shortened(text), text.size(),
                    AddedTokens::kMaxContent);
    for (std::size_t j = 0; j < i; ++j)
      QUENCH_CHECK_AS(ErrorCode::bad_config, tokens[j].text != text, "\"{}\" is listed twice", shortened(text));
  }
}

// Members of Transformers' AddedToken.
Json::Object token_members(const std::string& content, bool special) {
  return Json::Object{{"content", content}, {"single_word", false}, {"lstrip", false},
                      {"rstrip", false},    {"normalized", false},  {"special", special}};
}

// Id of a token in the model's vocabulary, in its spelling.
std::optional<std::int64_t> model_id(const Json& model, const std::string& text) {
  const Json& vocabulary = model.at("vocab");
  if (vocabulary.is_object()) {
    const Json* id = vocabulary.find(text);
    return id == nullptr ? std::nullopt : std::optional(id->as_int());
  }
  const Json::Array& pieces = vocabulary.as_array();
  const auto found = std::ranges::find_if(
      pieces, [&](const Json& piece) { return piece.is_array() && piece.as_array().at(0) == Json(text); });
  return found == pieces.end() ? std::nullopt : std::optional<std::int64_t>(found - pieces.begin());
}

std::int64_t model_size(const Json& model) {
  const Json& vocabulary = model.at("vocab");
  return static_cast<std::int64_t>(vocabulary.is_object() ? vocabulary.as_object().size()
                                                          : vocabulary.as_array().size());
}

// New special tokens: extra_special_tokens where Transformers 5 wrote a list, else additional_special_tokens.
void name_specials(Json& settings, std::span<const NewToken> tokens) {
  Json* list = settings.find("extra_special_tokens");
  if (list == nullptr || !list->is_array()) list = settings.find("additional_special_tokens");
  const auto holds = [&](const std::string& text) {
    return list != nullptr && list->is_array() && std::ranges::any_of(list->as_array(), [&](const Json& token) {
             return token == Json(text) ||
                    (token.is_object() && token.find("content") != nullptr && *token.find("content") == Json(text));
           });
  };
  for (const NewToken& token : tokens) {
    if (!token.special || holds(token.text)) continue;
    if (list == nullptr || !list->is_array()) list = &settings.set("additional_special_tokens", Json::array());
    list->push_back(token.text);
  }
}

// `entries`: id, members; of all added tokens.
void write_settings(const TokenizerFiles& source, Files& files, std::span<const NewToken> tokens,
                    const std::vector<std::pair<std::int64_t, Json::Object>>& entries, const NamedTokens& names,
                    const char* tokenizer_class) {
  std::string* text = find_file(files, kSettings);
  Json settings;
  if (text != nullptr) {
    settings = parsed(source, kSettings, *text);
  } else {
    settings = Json(Json::Object{{"tokenizer_class", tokenizer_class}, {"clean_up_tokenization_spaces", false}});
    if (names.bos) settings.set("bos_token", *names.bos);
    if (names.eos) settings.set("eos_token", *names.eos);
    if (names.pad) settings.set("pad_token", *names.pad);
    text = &files.emplace_back(std::string(kSettings), std::string()).second;
  }
  Json* decoder = settings.find("added_tokens_decoder");
  if (decoder == nullptr || !decoder->is_object()) decoder = &settings.set("added_tokens_decoder", Json::object());
  for (const auto& [id, members] : entries) decoder->set(std::to_string(id), Json(members));
  name_specials(settings, tokens);
  *text = settings.dump(2) + "\n";
  if (std::string* map = find_file(files, kTokensMap)) {
    Json json = parsed(source, kTokensMap, *map);
    name_specials(json, tokens);
    *map = json.dump(2) + "\n";
  }
  if (std::string* legacy = find_file(files, kLegacyTokens)) {
    Json json = parsed(source, kLegacyTokens, *legacy);
    for (const auto& [id, members] : entries)
      for (const NewToken& token : tokens)
        if (members.front().second == Json(token.text)) json.set(token.text, id);
    *legacy = json.dump(2) + "\n";
  }
}

}  // namespace

void require_changed(const NewToken& token, std::int64_t id, bool special) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, token.special && !special,
                  "\"{}\" is {} token {} of the tokenizer already; remove it from the list", shortened(token.text),
                  special ? "special" : "added", id);
}

NamedTokens named_tokens(const Tokenizer& tokenizer) {
  const auto name = [&](std::optional<std::int32_t> id) {
    return id ? std::optional(tokenizer.token_text(*id)) : std::nullopt;
  };
  return {.bos = name(tokenizer.bos_id()), .eos = name(tokenizer.eos_id()), .pad = name(tokenizer.pad_id())};
}

TokenizerFiles with_new_json_tokens(const TokenizerFiles& source, std::span<const NewToken> tokens,
                                    const NamedTokens& names) {
  require_new(tokens);
  Files files = source.files();
  Json root = parsed(source, files.front().first, files.front().second);
  const Json& model = root.at("model");
  Json* added = root.find("added_tokens");
  if (added == nullptr || !added->is_array()) added = &root.set("added_tokens", Json::array());
  std::int64_t next = model_size(model);
  for (const Json& entry : added->as_array())
    if (!model_id(model, entry.at("content").as_string())) ++next;
  for (const NewToken& token : tokens) {
    Json::Array& list = added->as_array();
    const auto known =
        std::ranges::find_if(list, [&](const Json& entry) { return entry.at("content") == Json(token.text); });
    if (known != list.end()) {
      require_changed(token, known->at("id").as_int(), bool_field(*known, "special", false));
      known->set("special", true);
      continue;
    }
    const std::optional<std::int64_t> piece = model_id(model, token.text);
    const std::int64_t id = piece ? *piece : next++;
    Json::Object entry = token_members(token.text, token.special);
    entry.insert(entry.begin(), {"id", id});
    // Ordered by id.
    const auto after = std::ranges::find_if(list, [&](const Json& other) { return other.at("id").as_int() > id; });
    list.insert(after, Json(std::move(entry)));
  }
  std::vector<std::pair<std::int64_t, Json::Object>> entries;
  for (const Json& entry : added->as_array()) {
    Json::Object members = token_members(entry.at("content").as_string(), bool_field(entry, "special", false));
    for (auto& [key, value] : members)
      if (key != "content" && key != "special") value = bool_field(entry, key, false);
    entries.emplace_back(entry.at("id").as_int(), std::move(members));
  }
  files.front().second = root.dump(2) + "\n";
  write_settings(source, files, tokens, entries, names, "PreTrainedTokenizerFast");
  return {source.source(), std::move(files)};
}

TokenizerFiles with_new_piece_tokens(const TokenizerFiles& source, std::span<const NewToken> tokens,
                                     const NamedTokens& names,
                                     const std::function<std::optional<std::int32_t>(const std::string&)>& piece_id,
                                     std::int64_t vocab_size) {
  require_new(tokens);
  Files files = source.files();
  std::vector<std::pair<std::int64_t, Json::Object>> entries;
  const std::vector<AddedToken>& old = source.settings().added_tokens;
  for (const AddedToken& token : old)
    entries.emplace_back(token.id, Json::Object{{"content", token.content},
                                                {"single_word", token.single_word},
                                                {"lstrip", token.lstrip},
                                                {"rstrip", token.rstrip},
                                                {"normalized", token.normalized},
                                                {"special", token.special}});
  for (const NewToken& token : tokens) {
    const auto known = std::ranges::find(old, token.text, &AddedToken::content);
    if (known != old.end()) {
      require_changed(token, known->id, known->special);
      entries[static_cast<std::size_t>(known - old.begin())].second.back().second = true;
      continue;
    }
    const std::optional<std::int32_t> piece = piece_id(token.text);
    entries.emplace_back(piece ? *piece : vocab_size++, token_members(token.text, token.special));
  }
  write_settings(source, files, tokens, entries, names, "LlamaTokenizer");
  return {source.source(), std::move(files)};
}

}  // namespace quench
