#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <unordered_set>

#include "core/json/json.h"
#include "data/tokenizer/text/json_fields.h"
#include "data/tokenizer/tokenizer_files.h"
#include "data/tokenizer/tokenizer_json_model.h"

namespace quench {
namespace {

// Hugging Face tokenizers numbers tokens outside the vocabulary consecutively from its size, ignoring the file's ids;
// other ids are rejected.
std::vector<AddedToken> read_added_tokens(const Json& json, const Vocabulary& vocabulary,
                                          const std::vector<std::string>& vocabulary_tokens) {
  std::vector<AddedToken> tokens;
  std::unordered_set<std::string_view> contents;
  auto next_id = static_cast<std::int64_t>(vocabulary.size());
  for (const Json& entry : json.as_array()) {
    AddedToken token{.id = read_token_id(entry.at("id")),
                     .content = entry.at("content").as_string(),
                     .single_word = bool_field(entry, "single_word", false),
                     .lstrip = bool_field(entry, "lstrip", false),
                     .rstrip = bool_field(entry, "rstrip", false),
                     .normalized = bool_field(entry, "normalized", false),
                     .special = bool_field(entry, "special", false)};
    QUENCH_CHECK_AS(ErrorCode::corrupt, !token.content.empty() && token.content.size() <= AddedTokens::kMaxContent,
                    "{}: added token {}: its content has {} bytes, expected 1 to {}", position(entry), token.id,
                    token.content.size(), AddedTokens::kMaxContent);
    QUENCH_CHECK_AS(ErrorCode::corrupt, contents.insert(entry.at("content").as_string()).second,
                    "{}: added token \"{}\" is listed twice", position(entry), shortened(token.content));
    const auto known = vocabulary.find(token.content);
    const std::int64_t expected = known != vocabulary.end() ? known->second : next_id++;
    QUENCH_CHECK_AS(ErrorCode::corrupt, token.id == expected, "{}: added token \"{}\" has id {}, expected {}{}",
                    position(entry), shortened(token.content), token.id, expected,
                    known != vocabulary.end() ? " as in the vocabulary" : "");
    const auto index = static_cast<std::size_t>(token.id);
    QUENCH_CHECK_AS(ErrorCode::corrupt,
                    known != vocabulary.end() || index >= vocabulary_tokens.size() || vocabulary_tokens[index].empty(),
                    "{}: id {} of added token \"{}\" belongs to another token too", position(entry), token.id,
                    shortened(token.content));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Single-sequence template: special tokens, the sequence, special tokens.
void read_template(const Json& processor, TokenizerDescription& description, std::int64_t vocab_size) {
  bool after_sequence = false;
  const Json& special_tokens = processor.at("special_tokens");
  for (const Json& piece : processor.at("single").as_array()) {
    if (const Json* sequence = piece.find("Sequence")) {
      QUENCH_CHECK_AS(ErrorCode::unsupported, sequence->at("id").as_string() == "A" && !after_sequence,
                      "{}: post_processor: a template for one sequence must hold sequence A once", position(piece));
      after_sequence = true;
      continue;
    }
    const Json& name = piece.at("SpecialToken").at("id");
    const Json* token = special_tokens.find(name.as_string());
    QUENCH_CHECK_AS(ErrorCode::corrupt, token != nullptr, "{}: post_processor: \"{}\" is not among its special_tokens",
                    position(name), shortened(name.as_string()));
    for (const Json& id : token->at("ids").as_array()) {
      QUENCH_CHECK_AS(ErrorCode::corrupt, read_token_id(id) < vocab_size, "{}: post_processor: no token has id {}",
                      position(id), read_token_id(id));
      (after_sequence ? description.suffix : description.prefix).push_back(read_token_id(id));
    }
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, after_sequence, "{}: post_processor: the template leaves out sequence A",
                  position(processor));
}

void read_post_processor(const Json& processor, TokenizerDescription& description, std::int64_t vocab_size) {
  const std::string& type = component_type(processor);
  if (type == "ByteLevel") return;  // affects offsets only
  if (type == "Sequence") {
    for (const Json& component : processor.at("processors").as_array()) {
      QUENCH_CHECK_AS(ErrorCode::unsupported, component_type(component) != "Sequence",
                      "{}: post_processor: a Sequence within a Sequence is not supported", position(component));
      read_post_processor(component, description, vocab_size);
    }
    return;
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, type == "TemplateProcessing",
                  "{}: post_processor {} is not supported; TemplateProcessing, ByteLevel and a Sequence of them are",
                  position(processor), shortened(type));
  QUENCH_CHECK_AS(ErrorCode::unsupported, description.prefix.empty() && description.suffix.empty(),
                  "{}: post_processor: more than one template is not supported", position(processor));
  read_template(processor, description, vocab_size);
}

TokenizerDescription read_description(const Json& root) {
  if (const Json* version = optional_field(root, "version")) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, version->as_string() == "1.0", "{}: version {} is not supported; 1.0 is",
                    position(*version), shortened(version->as_string()));
  }
  const Json& model = root.at("model");
  const Json* normalizer = optional_field(root, "normalizer");
  const Json* pre_tokenizer = root.find("pre_tokenizer");
  // Pipeline first: earliest detection of an unsupported kind.
  TokenDecoder decoder(optional_field(root, "decoder"));
  const Normalizer normalizes = normalizer ? Normalizer(*normalizer) : Normalizer();
  TokenizerDescription description{
      .model = {},
      .tokens = {},
      .added_tokens = {},
      .normalizer = normalizes,
      .pre_tokenizer = PreTokenizer(pre_tokenizer ? *pre_tokenizer : Json(), decoder.is_byte_level(), normalizes),
      .decoder = decoder,
      .prefix = {},
      .suffix = {}};
  Vocabulary vocabulary;
  description.model = read_token_model(model, decoder.is_byte_level(), vocabulary, description.tokens);
  auto vocab_size = static_cast<std::int64_t>(description.tokens.size());
  if (const Json* added = optional_field(root, "added_tokens")) {
    description.added_tokens = read_added_tokens(*added, vocabulary, description.tokens);
  }
  for (const AddedToken& token : description.added_tokens) {
    vocab_size = std::max(vocab_size, static_cast<std::int64_t>(token.id) + 1);
  }
  if (const Json* processor = optional_field(root, "post_processor")) {
    read_post_processor(*processor, description, vocab_size);
  }
  return description;
}

}  // namespace

TokenizerDescription read_tokenizer_json(std::string_view text, std::string_view source) {
  Json::ParseOptions options;
  options.source = source;
  options.max_bytes = TokenizerFiles::kMaxVocabularyBytes;
  const Json root = Json::parse(text, options);
  try {
    return read_description(root);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", source, error.what()));
  }
}

}  // namespace quench
