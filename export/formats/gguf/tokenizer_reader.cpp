#include "export/formats/gguf/tokenizer_reader.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <unordered_map>

#include "core/system/choice_table.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/text/published_patterns.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/formats/gguf/metadata_fields.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/token_kinds.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int64_t> kinds;
  std::vector<double> scores;  // empty: none

  [[nodiscard]] bool is_added(std::size_t id) const { return kinds[id] == kControl || kinds[id] == kUserDefined; }
};

// Empty if absent.
template <class Item, class Read>
std::vector<Item> read_list(const GgufFields& fields, std::string_view key, std::string_view expected,
                            bool (Json::*is)() const, const Read& read) {
  const Json* list = fields.find(key);
  std::vector<Item> items;
  if (list == nullptr) return items;
  QUENCH_CHECK_AS(ErrorCode::corrupt, list->is_array(), "{}: {} is {}, expected a list of {}", fields.source(),
                  fields.name(key), list->type_name(), expected);
  for (const Json& item : list->as_array()) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, (item.*is)(), "{}: {} holds {}, expected {}", fields.source(), fields.name(key),
                    item.type_name(), expected);
    items.push_back(read(item));
  }
  return items;
}

Tokens read_tokens(const GgufFields& fields) {
  Tokens tokens;
  tokens.texts = read_list<std::string>(fields, "tokens", "texts", &Json::is_string,
                                        [](const Json& item) { return item.as_string(); });
  tokens.kinds = read_list<std::int64_t>(fields, "token_type", "integers", &Json::is_integer,
                                         [](const Json& item) { return item.as_int(); });
  tokens.scores = read_list<double>(fields, "scores", "numbers", &Json::is_number,
                                    [](const Json& item) { return item.as_double(); });
  QUENCH_CHECK_AS(ErrorCode::corrupt, !tokens.texts.empty(), "{}: {} names no tokens", fields.source(),
                  fields.name("tokens"));
  if (tokens.kinds.empty()) tokens.kinds.assign(tokens.texts.size(), kNormal);
  const auto check_size = [&](std::string_view key, std::size_t size) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, size == tokens.texts.size(), "{}: {} has {} items, {} has {}", fields.source(),
                    fields.name(key), size, fields.name("tokens"), tokens.texts.size());
  };
  check_size("token_type", tokens.kinds.size());
  if (!tokens.scores.empty()) check_size("scores", tokens.scores.size());
  return tokens;
}

// By the id under the key.
std::optional<std::string> named_token(const GgufFields& fields, const Tokens& tokens, std::string_view key) {
  const auto id = fields.find_integer(key);
  if (!id) return std::nullopt;
  QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::size_t>(*id) < tokens.texts.size(),
                  "{}: {} is {}, but there are {} tokens", fields.source(), fields.name(key), *id, tokens.texts.size());
  return tokens.texts[static_cast<std::size_t>(*id)];
}

// Unused tokens only pad.
Json vocabulary(const GgufFields& fields, const Tokens& tokens) {
  Json::Object entries;
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    if (tokens.kinds[id] == kUnused) continue;
    const auto [other, is_new] = ids.emplace(tokens.texts[id], id);
    QUENCH_CHECK_AS(ErrorCode::corrupt, is_new, "{}: {} has {} twice, as {} and {}", fields.source(),
                    fields.name("tokens"), Json(tokens.texts[id]).dump(), other->second, id);
    entries.emplace_back(tokens.texts[id], static_cast<std::int64_t>(id));
  }
  return entries;
}

Json added_tokens(const Tokens& tokens) {
  Json::Array added;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    if (!tokens.is_added(id) && tokens.kinds[id] != kUnknown) continue;
    added.push_back(Json::Object{{"id", static_cast<std::int64_t>(id)},
                                 {"content", tokens.texts[id]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", tokens.kinds[id] != kUserDefined}});
  }
  return added;
}

Json byte_level(bool use_regex) {
  return Json::Object{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer(const GgufPreTokenizer& way) {
  Json::Array parts;
  for (const std::string_view name : way.patterns) {
    if (name == "gpt2" || name == "individual_digits") continue;  // separate pre_tokenizer components
    const auto* pattern = std::ranges::find(kPublishedPatterns, name, &PublishedPattern::name);
    parts.push_back(Json::Object{{"type", "Split"},
                                 {"pattern", Json::Object{{"Regex", pattern->expression}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}});
  }
  if (way.patterns.front() == "individual_digits")
    parts.push_back(Json::Object{{"type", "Digits"}, {"individual_digits", true}});
  parts.push_back(byte_level(way.patterns.back() == "gpt2"));
  return Json::Object{{"type", "Sequence"}, {"pretokenizers", std::move(parts)}};
}

Json bpe(Json vocab, Json merges, bool ignore_merges, std::optional<std::string> unknown) {
  return Json::Object{{"type", "BPE"},
                      {"unk_token", unknown ? Json(*unknown) : Json()},
                      {"fuse_unk", unknown.has_value()},
                      {"byte_fallback", unknown.has_value()},
                      {"ignore_merges", ignore_merges},
                      {"vocab", std::move(vocab)},
                      {"merges", std::move(merges)}};
}

struct Described {
  Json::Object json;  // members of tokenizer.json
  bool begins = false;
};

Described read_byte_level(const GgufFields& fields, const Tokens& tokens) {
  const auto pre = fields.find_text("pre");
  std::vector<std::string_view> names;
  const GgufPreTokenizer* way = nullptr;
  for (const GgufPreTokenizer& known : gguf_pre_tokenizers())
    for (const std::string_view name : known.names) {
      names.push_back(name);
      if (name == pre) way = &known;
    }
  QUENCH_CHECK_AS(
      ErrorCode::unsupported, way != nullptr,
      "{}: {} is {}, an unknown pre-tokenizer; known: {}. Put the model's tokenizer.json into the file's folder",
      fields.source(), fields.name("pre"), pre ? Json(*pre).dump() : "absent", fmt::join(names, ", "));
  Json::Array merges;
  for (std::string& merge : read_list<std::string>(fields, "merges", "texts", &Json::is_string,
                                                   [](const Json& item) { return item.as_string(); }))
    merges.push_back(std::move(merge));
  return {{{"normalizer", nullptr},
           {"pre_tokenizer", pre_tokenizer(*way)},
           {"decoder", byte_level(true)},
           {"model", bpe(vocabulary(fields, tokens), std::move(merges), way->ignores_merges, std::nullopt)}},
          way->begins};
}

// SentencePiece merges the adjacent pair of highest score: sorted by the result's score. Of equal scores it merges the
// first pair of the text: of a run of spaces, that with the longest first part.
Json merges_of_scores(const Tokens& tokens) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < tokens.texts.size(); ++id)
    if (tokens.kinds[id] == kNormal) ids.emplace(tokens.texts[id], id);
  using Merge =
      std::tuple<double, std::int64_t, std::size_t, std::size_t, std::size_t>;  // negative score, rank, token, parts
  std::vector<Merge> merges;
  for (const auto& [text, id] : ids)
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.emplace_back(-tokens.scores[id], is_piece_of_spaces(text) ? -static_cast<std::int64_t>(cut) : 0, id,
                            left->second, right->second);
    }
  std::ranges::sort(merges);
  Json::Array pairs;
  for (const auto& [score, rank, id, left, right] : merges)
    pairs.push_back(Json::Array{tokens.texts[left], tokens.texts[right]});
  return pairs;
}

Described read_sentence_piece(const GgufFields& fields, const Tokens& tokens) {
  constexpr std::size_t kLongest = 1 << 10;  // bytes
  QUENCH_CHECK_AS(ErrorCode::corrupt, !tokens.scores.empty(), "{}: it has no {}", fields.source(),
                  fields.name("scores"));
  for (std::size_t id = 0; id < tokens.texts.size(); ++id) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(tokens.scores[id]), "{}: {} holds {}", fields.source(),
                    fields.name("scores"), tokens.scores[id]);
    QUENCH_CHECK_AS(ErrorCode::corrupt, tokens.texts[id].size() <= kLongest, "{}: token {} of {} has {} bytes",
                    fields.source(), id, fields.name("tokens"), tokens.texts[id].size());
  }
  const auto unknown = std::ranges::find(tokens.kinds, kUnknown);
  QUENCH_CHECK_AS(ErrorCode::unsupported, unknown != tokens.kinds.end(), "{}: {} has no unknown token", fields.source(),
                  fields.name("token_type"));
  const std::string& unknown_text = tokens.texts[static_cast<std::size_t>(unknown - tokens.kinds.begin())];
  const bool space_prefix = fields.find_flag("add_space_prefix").value_or(true);
  const auto replace = [](std::string_view from, std::string_view to) {
    return Json::Object{{"type", "Replace"}, {"pattern", Json::Object{{"String", from}}}, {"content", to}};
  };
  Json::Array normalizers,
      decoders{replace(kPieceSpace, " "), Json::Object{{"type", "ByteFallback"}}, Json::Object{{"type", "Fuse"}}};
  if (space_prefix) {
    normalizers.push_back(Json::Object{{"type", "Prepend"}, {"prepend", kPieceSpace}});
    decoders.push_back(Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  normalizers.push_back(replace(" ", kPieceSpace));
  return {{{"normalizer", Json::Object{{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}},
           {"pre_tokenizer", nullptr},
           {"decoder", Json::Object{{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
           {"model", bpe(vocabulary(fields, tokens), merges_of_scores(tokens), false, unknown_text)}},
          true};
}

// Tokens before and after a text.
Json surroundings(const GgufFields& fields, const Tokens& tokens, bool begins) {
  Json::Array single;
  Json::Object special;
  const auto add = [&](std::string_view key) {
    const auto text = named_token(fields, tokens, key);
    if (!text) return;
    const std::int64_t id = *fields.find_integer(key);
    single.push_back(Json::Object{{"SpecialToken", Json::Object{{"id", *text}, {"type_id", 0}}}});
    if (std::ranges::find(special, *text, &std::pair<std::string, Json>::first) == special.end())
      special.emplace_back(*text,
                           Json::Object{{"id", *text}, {"ids", Json::Array{id}}, {"tokens", Json::Array{*text}}});
  };
  if (fields.find_flag("add_bos_token").value_or(begins)) add("bos_token_id");
  single.push_back(Json::Object{{"Sequence", Json::Object{{"id", "A"}, {"type_id", 0}}}});
  if (fields.find_flag("add_eos_token").value_or(false)) add("eos_token_id");
  if (special.empty()) return nullptr;
  Json::Array pair = single;
  pair.push_back(Json::Object{{"Sequence", Json::Object{{"id", "B"}, {"type_id", 1}}}});
  return Json::Object{{"type", "TemplateProcessing"},
                      {"single", std::move(single)},
                      {"pair", std::move(pair)},
                      {"special_tokens", std::move(special)}};
}

struct Model {
  std::string_view name;  // tokenizer.ggml.model
  Described (*read)(const GgufFields& fields, const Tokens& tokens);
};
constexpr Model kModels[] = {{"gpt2", read_byte_level}, {"llama", read_sentence_piece}};

std::unique_ptr<Tokenizer> open_gguf_tokenizer(const fs::path& file, const std::vector<std::string>&) {
  return std::make_unique<JsonTokenizer>(tokenizer_files(read_gguf_head(file), file.string()));
}

fs::path find_gguf_tokenizer(const fs::path& folder) {
  if (!fs::is_directory(folder) && !is_gguf_path(folder)) return {};
  fs::path file = find_gguf_file(folder);
  return !file.empty() && holds_tokenizer(read_gguf_head(file)) ? file : fs::path();
}

const Registered<TokenizerKind> kGgufTokenizer{{.name = "*.gguf",
                                                .summary = "a GGUF file",
                                                .open = open_gguf_tokenizer,
                                                .extension = ".gguf",
                                                .find = find_gguf_tokenizer}};

}  // namespace

bool holds_tokenizer(const GgufHead& head) {
  const auto model = head.metadata.find("tokenizer.ggml.model");
  return model != head.metadata.end() && model->second != Json("none");
}

TokenizerFiles tokenizer_files(const GgufHead& head, const std::string& source) {
  const GgufFields fields(head, "tokenizer.ggml.", source);
  const auto name = fields.find_text("model");
  const auto* model = std::ranges::find(kModels, name.value_or(""), &Model::name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, model != std::end(kModels),
                  "{}: {} is {}; gpt2 and llama can be read. Put the model's tokenizer.json into the file's folder",
                  source, fields.name("model"), name ? Json(*name).dump() : "absent");
  const Tokens tokens = read_tokens(fields);
  auto [json, begins] = model->read(fields, tokens);
  json.insert(json.begin(), {{"version", "1.0"}, {"added_tokens", added_tokens(tokens)}});
  json.emplace_back("post_processor", surroundings(fields, tokens, begins));
  Json config = Json::Object{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const auto& [key, id] : {std::pair{"bos_token", "bos_token_id"},
                                {"eos_token", "eos_token_id"},
                                {"pad_token", "padding_token_id"},
                                {"unk_token", "unknown_token_id"}})
    if (const auto text = named_token(fields, tokens, id)) config.set(key, *text);
  if (const auto chat = head.metadata.find("tokenizer.chat_template"); chat != head.metadata.end()) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, chat->second.is_string(), "{}: {} is {}, expected a text", source, chat->first,
                    chat->second.type_name());
    config.set("chat_template", chat->second);
  }
  // Errors: "model.gguf/tokenizer.json: ...".
  return {(fs::path(source) / "tokenizer.json").string(),
          {{"tokenizer.json", Json(std::move(json)).dump() + "\n"}, {"tokenizer_config.json", config.dump(2) + "\n"}}};
}

}  // namespace quench
