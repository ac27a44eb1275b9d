#include "export/gguf/tokenizer.h"

#include <sentencepiece_processor.h>

#include <array>
#include <optional>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "data/tokenizer/text/published_patterns.h"
#include "data/tokenizer/tokenizer.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxBytes = std::uint64_t{256} << 20;

// llama.cpp's kinds of tokens.
enum TokenKind : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct Vocabulary {
  std::string model;  // tokenizer.ggml.model
  std::string pre;    // tokenizer.ggml.pre, or ""
  std::vector<std::string> tokens;
  std::vector<std::int32_t> kinds;
  std::vector<std::string> merges;
  std::vector<float> scores;

  void set(std::size_t id, std::string text, TokenKind kind) {
    tokens.at(id) = std::move(text);
    kinds.at(id) = kind;
  }
};

// Every id has some token, those without one in the tokenizer an unused one.
Vocabulary empty_vocabulary(std::string model, std::int64_t size) {
  Vocabulary vocabulary{.model = std::move(model)};
  for (std::int64_t id = 0; id < size; ++id) vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
  vocabulary.kinds.assign(static_cast<std::size_t>(size), kUnused);
  return vocabulary;
}

struct PreTokenizer {
  std::string_view pattern;  // published_patterns.h
  std::string_view name;     // llama.cpp's
};

// Split patterns whose pieces llama.cpp knows how to make.
constexpr std::array kPreTokenizers = {
    PreTokenizer{"llama3", "llama-bpe"}, PreTokenizer{"qwen2", "qwen2"},  PreTokenizer{"gpt2", "gpt-2"},
    PreTokenizer{"tekken", "tekken"},    PreTokenizer{"o200k", "gpt-4o"},
};

std::optional<std::string> name_of_pattern(std::string_view expression) {
  for (const PublishedPattern& pattern : kPublishedPatterns)
    if (pattern.expression == expression)
      for (const PreTokenizer& known : kPreTokenizers)
        if (known.pattern == pattern.name) return std::string(known.name);
  return std::nullopt;
}

// The name for the first split pattern in a pre_tokenizer; a ByteLevel that splits has GPT-2's.
std::optional<std::string> pre_tokenizer_name(const Json* description) {
  if (description == nullptr || description->is_null()) return std::nullopt;
  const std::string& type = description->at("type").as_string();
  if (type == "Sequence") {
    for (const Json& part : description->at("pretokenizers").as_array())
      if (const auto name = pre_tokenizer_name(&part)) return name;
    return std::nullopt;
  }
  if (type == "ByteLevel") {
    const Json* splits = description->find("use_regex");
    return splits == nullptr || splits->as_bool() ? std::optional<std::string>("gpt-2") : std::nullopt;
  }
  if (type != "Split") return std::nullopt;
  const Json* pattern = description->at("pattern").find("Regex");
  return pattern == nullptr ? std::nullopt : name_of_pattern(pattern->as_string());
}

bool is_byte_level(const Json& tokenizer) {
  const Json* decoder = tokenizer.find("decoder");
  return decoder != nullptr && decoder->is_object() && decoder->at("type") == Json("ByteLevel");
}

std::optional<Vocabulary> read_byte_level(const Json& json, std::int64_t size) {
  const Json& model = json.at("model");
  if (!is_byte_level(json) || model.at("type") != Json("BPE")) return std::nullopt;
  const auto pre = pre_tokenizer_name(json.find("pre_tokenizer"));
  if (!pre) return std::nullopt;
  Vocabulary vocabulary = empty_vocabulary("gpt2", size);
  vocabulary.pre = *pre;
  const auto index = [&](const Json& id) {
    const std::uint64_t value = id.as_uint();
    QUENCH_CHECK_AS(ErrorCode::bad_config, value < static_cast<std::uint64_t>(size),
                    "the tokenizer has a token {}, the model a vocabulary of {}", value, size);
    return static_cast<std::size_t>(value);
  };
  for (const auto& [text, id] : model.at("vocab").as_object()) vocabulary.set(index(id), text, kNormal);
  for (const Json& merge : model.at("merges").as_array())
    vocabulary.merges.push_back(merge.is_string()
                                    ? merge.as_string()
                                    : merge.as_array().at(0).as_string() + " " + merge.as_array().at(1).as_string());
  if (const Json* added = json.find("added_tokens"); added != nullptr && added->is_array())
    for (const Json& token : added->as_array())
      vocabulary.set(index(token.at("id")), token.at("content").as_string(),
                     token.at("special").as_bool() ? kControl : kUserDefined);
  return vocabulary;
}

Vocabulary read_sentence_piece(const fs::path& file, std::int64_t size) {
  sentencepiece::SentencePieceProcessor processor;
  const auto status = processor.LoadFromSerializedProto(read_file(file, kMaxBytes));
  QUENCH_CHECK_AS(ErrorCode::corrupt, status.ok(), "{}: {}", file.string(), status.ToString());
  const int pieces = processor.GetPieceSize();
  QUENCH_CHECK_AS(ErrorCode::bad_config, pieces <= size, "the tokenizer has {} tokens, the model a vocabulary of {}",
                  pieces, size);
  Vocabulary vocabulary = empty_vocabulary("llama", size);
  vocabulary.scores.assign(static_cast<std::size_t>(size), -10000.0f);
  for (int id = 0; id < pieces; ++id) {
    const TokenKind kind = processor.IsUnknown(id)   ? kUnknown
                           : processor.IsControl(id) ? kControl
                           : processor.IsByte(id)    ? kByte
                           : processor.IsUnused(id)  ? kUnused
                                                     : kNormal;
    vocabulary.set(static_cast<std::size_t>(id), processor.IdToPiece(id), kind);
    vocabulary.scores[static_cast<std::size_t>(id)] = processor.GetScore(id);
  }
  return vocabulary;
}

std::optional<Vocabulary> read_vocabulary(const fs::path& folder, std::int64_t size) {
  if (fs::is_regular_file(folder / "tokenizer.json")) {
    Json::ParseOptions options;
    options.max_bytes = kMaxBytes;
    if (auto found = read_byte_level(Json::parse_file(folder / "tokenizer.json", options), size)) return found;
  }
  if (fs::is_regular_file(folder / "tokenizer.model")) return read_sentence_piece(folder / "tokenizer.model", size);
  return std::nullopt;
}

bool begins_with_bos(const fs::path& folder) {
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(folder);
  const std::vector<std::int32_t> ids = tokenizer->encode("a");
  return !ids.empty() && tokenizer->bos_id() == ids.front();
}

// The text of a chat template, where the folder has one.
std::optional<std::string> chat_template(const fs::path& folder) {
  if (fs::is_regular_file(folder / "chat_template.jinja")) return read_file(folder / "chat_template.jinja", kMaxBytes);
  const fs::path file = folder / "tokenizer_config.json";
  if (!fs::is_regular_file(file)) return std::nullopt;
  const Json config = Json::parse_file(file);
  const Json* found = config.find("chat_template");
  return found != nullptr && found->is_string() ? std::optional(found->as_string()) : std::nullopt;
}

}  // namespace

std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const fs::path& folder, const nn::ModelConfig& config) {
  std::optional<Vocabulary> vocabulary = read_vocabulary(folder, config.vocab_size);
  if (!vocabulary) {
    QUENCH_LOG_WARN("the GGUF file has no tokenizer: there is none that llama.cpp has a counterpart of");
    return {{"tokenizer.ggml.model", std::string("none")}};
  }
  std::vector<std::pair<std::string, GgufValue>> metadata;
  metadata.emplace_back("tokenizer.ggml.model", vocabulary->model);
  if (!vocabulary->pre.empty()) metadata.emplace_back("tokenizer.ggml.pre", vocabulary->pre);
  metadata.emplace_back("tokenizer.ggml.tokens", std::move(vocabulary->tokens));
  if (!vocabulary->scores.empty()) metadata.emplace_back("tokenizer.ggml.scores", std::move(vocabulary->scores));
  metadata.emplace_back("tokenizer.ggml.token_type", std::move(vocabulary->kinds));
  if (!vocabulary->merges.empty()) metadata.emplace_back("tokenizer.ggml.merges", std::move(vocabulary->merges));
  const auto id = [&](const char* key, std::optional<std::int64_t> value) {
    if (value) metadata.emplace_back(key, static_cast<std::uint32_t>(*value));
  };
  id("tokenizer.ggml.bos_token_id", config.bos_token_id);
  id("tokenizer.ggml.eos_token_id",
     config.eos_token_ids.empty() ? std::nullopt : std::optional(config.eos_token_ids.front()));
  id("tokenizer.ggml.padding_token_id", config.pad_token_id);
  metadata.emplace_back("tokenizer.ggml.add_bos_token", begins_with_bos(folder));
  if (auto text = chat_template(folder)) metadata.emplace_back("tokenizer.chat_template", std::move(*text));
  return metadata;
}

}  // namespace quench
