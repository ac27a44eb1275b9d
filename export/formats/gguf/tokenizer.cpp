#include "export/formats/gguf/tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "data/tokenizer/text/normalizer.h"
#include "data/tokenizer/text/published_patterns.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"
#include "export/formats/gguf/merge_scores.h"
#include "export/formats/gguf/names.h"
#include "export/formats/gguf/sentence_piece.h"
#include "export/formats/gguf/special_tokens.h"
#include "export/formats/gguf/token_kinds.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;

struct Vocabulary {
  std::string model;  // tokenizer.ggml.model
  std::string pre;    // tokenizer.ggml.pre, or ""
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  std::vector<std::string> merges;
  std::vector<float> scores;
  std::vector<AddedToken> added;
  bool space_prefix = true;  // add_space_prefix; for models with scores

  void set(std::size_t id, std::string text, TokenKind kind) {
    tokens.at(id) = std::move(text);
    kinds.at(id) = kind;
  }
};

// Why a tokenizer has no counterpart.
struct Reasons {
  std::vector<std::string> texts;

  template <class... Values>
  std::nullopt_t add(fmt::format_string<Values...> format, Values&&... values) {
    texts.push_back(fmt::format(format, std::forward<Values>(values)...));
    return std::nullopt;
  }
};

// Unused tokens.
Vocabulary empty_vocabulary(std::string model, std::int64_t size) {
  Vocabulary vocabulary{.model = std::move(model)};
  for (std::int64_t id = 0; id < size; ++id) vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
  vocabulary.kinds.assign(static_cast<std::size_t>(size), kUnused);
  return vocabulary;
}

std::string_view name_of_pattern(std::string_view expression) {
  const auto* found = std::ranges::find(kPublishedPatterns, expression, &PublishedPattern::expression);
  return found == kPublishedPatterns.end() ? std::string_view() : found->name;
}

bool flag(const Json& component, std::string_view key, bool fallback) {
  const Json* value = component.find(key);
  return value == nullptr || value->is_null() ? fallback : value->as_bool();
}

// Split patterns of a component, "" if unsupported; ByteLevel: GPT-2's.
void add_patterns(const Json& component, std::vector<std::string_view>& patterns) {
  const std::string& type = component.at("type").as_string();
  if (type == "Sequence") {
    for (const Json& part : component.at("pretokenizers").as_array()) add_patterns(part, patterns);
  } else if (type == "ByteLevel") {
    if (flag(component, "use_regex", true)) patterns.emplace_back("gpt2");
    if (flag(component, "add_prefix_space", true))
      QUENCH_LOG_WARN(
          "the tokenizer adds a space before a text, llama.cpp's byte-level tokenizers do not: the first token differs "
          "there");
  } else if (type == "Digits") {
    patterns.emplace_back(flag(component, "individual_digits", false) ? "individual_digits" : "digits");
  } else {
    const Json* pattern = type == "Split" ? component.at("pattern").find("Regex") : nullptr;
    patterns.push_back(pattern == nullptr ? std::string_view() : name_of_pattern(pattern->as_string()));
  }
}

std::optional<std::string> pre_tokenizer_name(const Json* description) {
  if (description == nullptr || description->is_null()) return std::nullopt;
  std::vector<std::string_view> patterns;
  add_patterns(*description, patterns);
  const auto& known = gguf_pre_tokenizers();
  const auto found = std::ranges::find(known, patterns, &GgufPreTokenizer::patterns);
  return found == known.end() ? std::nullopt : std::optional<std::string>(found->names.front());
}

bool is_byte_level(const Json& tokenizer) {
  const Json* decoder = tokenizer.find("decoder");
  return decoder != nullptr && decoder->is_object() && decoder->at("type") == Json("ByteLevel");
}

std::size_t checked_id(std::uint64_t value, const Vocabulary& vocabulary) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, value < vocabulary.tokens.size(),
                  "the tokenizer has a token {}, the model a vocabulary of {}", value, vocabulary.tokens.size());
  return static_cast<std::size_t>(value);
}

std::vector<AddedToken> added_tokens(const Json& json) {
  std::vector<AddedToken> tokens;
  const Json* added = json.find("added_tokens");
  if (added == nullptr || !added->is_array()) return tokens;
  for (const Json& token : added->as_array())
    tokens.push_back({.id = static_cast<std::int32_t>(token.at("id").as_int()),
                      .content = token.at("content").as_string(),
                      .lstrip = flag(token, "lstrip", false),
                      .rstrip = flag(token, "rstrip", false),
                      .normalized = flag(token, "normalized", false),
                      .special = token.at("special").as_bool()});
  return tokens;
}

// llama.cpp strips only after tokens, of models that it knows by name (GgufArchitecture::tokens_of_name).
void warn_of_stripped_spaces(const Vocabulary& vocabulary, const nn::ModelConfig& config) {
  const GgufArchitecture* architecture = find_gguf_architecture(config.model_type);
  const auto is_token = [&](std::string_view text) {
    return std::ranges::find(vocabulary.tokens, text) != vocabulary.tokens.end();
  };
  const bool strips_after = architecture != nullptr && !architecture->tokens_of_name.empty() &&
                            std::ranges::all_of(architecture->tokens_of_name, is_token);
  constexpr std::size_t kMost = 8;
  std::vector<std::string> texts;
  std::size_t more = 0;
  for (const AddedToken& token : vocabulary.added) {
    if (!token.lstrip && (!token.rstrip || strips_after)) continue;
    if (texts.size() < kMost)
      texts.push_back(Json(token.content).dump());
    else
      ++more;
  }
  if (!texts.empty())
    QUENCH_LOG_WARN("the tokenizer drops spaces next to {}{} (lstrip, rstrip), llama.cpp does not: ids differ there",
                    fmt::join(texts, ", "), more == 0 ? "" : fmt::format(" and {} more", more));
}

void add_added_tokens(const Json& json, Vocabulary& vocabulary) {
  vocabulary.added = added_tokens(json);
  for (const AddedToken& token : vocabulary.added)
    if (const std::size_t id = checked_id(static_cast<std::uint64_t>(token.id), vocabulary);
        vocabulary.kinds[id] != kUnknown)
      vocabulary.set(id, token.content, token.special ? kControl : kUserDefined);
}

std::optional<Vocabulary> read_byte_level(const Json& json, std::int64_t size, Reasons& reasons) {
  const Json& model = json.at("model");
  if (!is_byte_level(json)) return std::nullopt;
  const std::string& type = model.at("type").as_string();
  if (type != "BPE") return reasons.add("tokenizer.json has a byte-level {} model; llama.cpp has byte-level BPE", type);
  const auto pre = pre_tokenizer_name(json.find("pre_tokenizer"));
  if (!pre) {
    std::vector<std::string_view> names;
    for (const GgufPreTokenizer& known : gguf_pre_tokenizers()) names.push_back(known.names.front());
    return reasons.add("the pre_tokenizer of tokenizer.json is none of those known of llama.cpp ({})",
                       fmt::join(names, ", "));
  }
  Vocabulary vocabulary = empty_vocabulary("gpt2", size);
  vocabulary.pre = *pre;
  for (const auto& [text, id] : model.at("vocab").as_object())
    vocabulary.set(checked_id(id.as_uint(), vocabulary), text, kNormal);
  for (const Json& merge : model.at("merges").as_array()) {
    const auto [first, second] = merged_pair(merge);
    vocabulary.merges.push_back(first + " " + second);
  }
  add_added_tokens(json, vocabulary);
  return vocabulary;
}

constexpr float kNoScore = -10000.0f;

// Added tokens of spaces that are not matched, as texts have no such character before normalization: merges make them.
void restore_merged_spaces(const Json::Array& merges, Vocabulary& vocabulary) {
  std::unordered_set<std::string> made;
  for (const Json& merge : merges) {
    const auto [first, second] = merged_pair(merge);
    if (is_piece_of_spaces(first) && is_piece_of_spaces(second)) made.insert(first + second);
  }
  for (const AddedToken& token : vocabulary.added)
    if (!token.special && !token.normalized && made.contains(token.content))
      vocabulary.kinds[checked_id(static_cast<std::uint64_t>(token.id), vocabulary)] = kNormal;
}

// Character-level BPE with byte fallback: SentencePiece models converted to tokenizer.json.
std::optional<Vocabulary> read_characters(const fs::path& folder, const Json& json, std::int64_t size,
                                          Reasons& reasons) {
  const Json& model = json.at("model");
  if (is_byte_level(json)) return std::nullopt;
  const std::string& type = model.at("type").as_string();
  if (type != "BPE") return reasons.add("tokenizer.json has a {} model; llama.cpp's \"llama\" is BPE", type);
  if (!flag(model, "byte_fallback", false))
    return reasons.add("the BPE model of tokenizer.json is neither byte-level nor has byte_fallback");
  Vocabulary vocabulary = empty_vocabulary("llama", size);
  vocabulary.scores.assign(static_cast<std::size_t>(size), kNoScore);
  const Json* unknown = model.find("unk_token");
  for (const auto& [text, id] : model.at("vocab").as_object()) {
    const bool byte = text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    const bool is_unknown = unknown != nullptr && unknown->is_string() && unknown->as_string() == text;
    vocabulary.set(checked_id(id.as_uint(), vocabulary), text, is_unknown ? kUnknown : byte ? kByte : kNormal);
  }
  const Json::Array& merges = model.at("merges").as_array();
  add_added_tokens(json, vocabulary);
  restore_merged_spaces(merges, vocabulary);
  if (const std::string reason =
          score_by_merges(merges, model.at("vocab").as_object(), vocabulary.kinds, vocabulary.scores);
      !reason.empty())
    return reasons.add("{}", reason);
  // Detects whether words start with a space marker.
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const auto ids = tokenizer->encode("a", {.add_special_tokens = false});
  vocabulary.space_prefix = !ids.empty() && tokenizer->token_text(ids.front()).starts_with(' ');
  return vocabulary;
}

constexpr float kWholeScore = -1000.0f;

// Tokens that some models' files do not mark as special; the texts are those of llama.cpp's converter.
bool looks_special(std::string_view text) {
  constexpr std::array<std::string_view, 4> kTexts = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  const auto is_within = [text](std::string_view open, std::string_view close) {
    return text.starts_with(open) && text.ends_with(close);
  };
  return std::ranges::find(kTexts, text) != kTexts.end() || is_within("<|", "|>") || is_within("<\uFF5C", "\uFF5C>") ||
         is_within("<unused", ">");
}

// Matched whole in the text, as llama.cpp's converter has it: with spaces as such, after all merges.
void add_whole_token(const AddedToken& token, bool special, Vocabulary& vocabulary) {
  const std::size_t id = checked_id(static_cast<std::uint64_t>(token.id), vocabulary);
  if (vocabulary.kinds[id] == kUnknown || vocabulary.kinds[id] == kByte) return;
  special = special || token.special || looks_special(token.content);
  vocabulary.set(id, special ? token.content : replaced(token.content, kPieceSpace, " "),
                 special ? kControl : kUserDefined);
  vocabulary.scores[id] = kWholeScore;
}

// `json`: tokenizer.json, or null.
std::optional<Vocabulary> read_sentence_piece(const fs::path& folder, const Json* json, std::int64_t size,
                                              Reasons& reasons) {
  const fs::path file = folder / "tokenizer.model";
  const std::string bytes = read_file(file, kMaxBytes);
  sentencepiece::SentencePieceProcessor processor;
  const auto status = processor.LoadFromSerializedProto(bytes);
  QUENCH_CHECK_AS(ErrorCode::corrupt, status.ok(), "{}: {}", file.string(), status.ToString());
  const SentencePieceSettings settings = read_sentence_piece_settings(bytes);
  if (settings.space_suffix)
    return reasons.add("tokenizer.model has treat_whitespace_as_suffix, which llama.cpp does not know");
  if (!settings.bpe) return reasons.add("tokenizer.model is no BPE model; llama.cpp's \"llama\" is BPE");
  if (settings.collapses_spaces || settings.normalizes)
    QUENCH_LOG_WARN("{}: the tokenizer {}, llama.cpp does not: ids differ there", file.string(),
                    settings.normalizes ? "normalizes texts" : "drops repeated spaces");
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const int pieces = processor.GetPieceSize();
  QUENCH_CHECK_AS(ErrorCode::bad_config, std::max<std::int64_t>(pieces, tokenizer->vocab_size()) <= size,
                  "the tokenizer has {} tokens, the model a vocabulary of {}",
                  std::max<std::int64_t>(pieces, tokenizer->vocab_size()), size);
  Vocabulary vocabulary = empty_vocabulary("llama", size);
  vocabulary.scores.assign(static_cast<std::size_t>(size), kNoScore);
  for (int id = 0; id < pieces; ++id) {
    const TokenKind kind = processor.IsUnknown(id)   ? kUnknown
                           : processor.IsControl(id) ? kControl
                           : processor.IsByte(id)    ? kByte
                           : processor.IsUnused(id)  ? kUnused
                                                     : kNormal;
    vocabulary.set(static_cast<std::size_t>(id), processor.IdToPiece(id), kind);
    vocabulary.scores[static_cast<std::size_t>(id)] = processor.GetScore(id);
  }
  const TokenizerSettings files = TokenizerFiles::read(file).settings();
  const auto add = [&](const AddedToken& token) {
    const bool special = std::ranges::find(files.special_tokens, token.content) != files.special_tokens.end();
    add_whole_token(token, special || tokenizer->is_special(token.id), vocabulary);
  };
  for (const std::int32_t id : settings.user_defined) add({.id = id, .content = processor.IdToPiece(id)});
  // After the model's pieces.
  for (std::int32_t id = pieces; id < tokenizer->vocab_size(); ++id)
    add({.id = id, .content = tokenizer->token_text(id)});
  vocabulary.added = json != nullptr ? added_tokens(*json) : files.added_tokens;
  std::ranges::for_each(vocabulary.added, add);
  vocabulary.space_prefix = settings.dummy_prefix;
  return vocabulary;
}

std::optional<Vocabulary> read_vocabulary(const fs::path& folder, std::int64_t size, Reasons& reasons) {
  std::optional<Json> json;
  if (fs::is_regular_file(folder / "tokenizer.json")) {
    Json::ParseOptions options;
    options.max_bytes = kMaxBytes;
    json = Json::parse_file(folder / "tokenizer.json", options);
    if (auto found = read_byte_level(*json, size, reasons)) return found;
  }
  if (fs::is_regular_file(folder / "tokenizer.model"))
    if (auto found = read_sentence_piece(folder, json ? &*json : nullptr, size, reasons)) return found;
  return json ? read_characters(folder, *json, size, reasons) : std::nullopt;
}

// Added before and after a text.
struct Surroundings {
  bool begin = false, end = false;
};

Surroundings surroundings(const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> ids = tokenizer.encode("a");
  return {!ids.empty() && tokenizer.bos_id() == ids.front(), !ids.empty() && tokenizer.eos_id() == ids.back()};
}

}  // namespace

std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const fs::path& folder, const nn::ModelConfig& config) {
  Reasons reasons;
  std::optional<Vocabulary> vocabulary = read_vocabulary(folder, config.vocab_size, reasons);
  if (!vocabulary) {
    if (reasons.texts.empty()) reasons.add("the model folder has none");
    QUENCH_LOG_WARN("the GGUF file has no tokenizer: {}; llama.cpp needs one to read text",
                    fmt::join(reasons.texts, "; "));
    return {{"tokenizer.ggml.model", std::string("none")}};
  }
  warn_of_stripped_spaces(*vocabulary, config);
  std::vector<std::pair<std::string, GgufValue>> metadata;
  metadata.emplace_back("tokenizer.ggml.model", vocabulary->model);
  if (!vocabulary->pre.empty()) metadata.emplace_back("tokenizer.ggml.pre", vocabulary->pre);
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(vocabulary->tokens));
  if (!vocabulary->scores.empty()) {
    metadata.emplace_back("tokenizer.ggml.scores", std::move(vocabulary->scores));
    metadata.emplace_back("tokenizer.ggml.add_space_prefix", vocabulary->space_prefix);
  }
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(vocabulary->kinds));
  if (!vocabulary->merges.empty()) metadata.emplace_back("tokenizer.ggml.merges", std::move(vocabulary->merges));
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const auto [begin, end] = surroundings(*tokenizer);
  const GgufSpecialTokens special = gguf_special_tokens(folder, *tokenizer, config);
  const auto id = [&](const char* key, std::optional<std::int64_t> value) {
    if (value) metadata.emplace_back(key, static_cast<std::uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", special.bos);
  id("tokenizer.ggml.eos_token_id", special.eos);
  id("tokenizer.ggml.eot_token_id", special.eot);
  id("tokenizer.ggml.eom_token_id", special.eom);
  id("tokenizer.ggml.padding_token_id", special.pad);
  metadata.emplace_back("tokenizer.ggml.add_bos_token", begin);
  metadata.emplace_back("tokenizer.ggml.add_eos_token", end);
  if (const auto& chat = tokenizer->chat_template()) {
    if (!chat->text.empty()) metadata.emplace_back("tokenizer.chat_template", chat->text);
    std::vector<std::string> names;
    for (const auto& named : chat->named) names.push_back(named.name);
    if (!names.empty()) metadata.emplace_back("tokenizer.chat_templates", std::move(names));
    for (const auto& named : chat->named) metadata.emplace_back("tokenizer.chat_template." + named.name, named.text);
  }
  return metadata;
}

std::int64_t gguf_tokenizer_bytes(const fs::path& folder, const nn::ModelConfig& config) {
  return static_cast<std::int64_t>(gguf_head(gguf_tokenizer(folder, config), {}).size());
}

}  // namespace quench
