#include "data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/json.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer_files.h"

namespace quench {
namespace {

using Vocabulary = std::unordered_map<std::string_view, std::int32_t>;  // text as written in the file, to id

std::int32_t read_id(const Json& value) {
  const std::int64_t id = value.as_int();
  QUENCH_CHECK_AS(ErrorCode::corrupt, id >= 0 && id <= std::numeric_limits<std::int32_t>::max() - 1,
                  "{}: token id {} is out of range", position(value), id);
  return static_cast<std::int32_t>(id);
}

// Fills tokens from model.vocab.
Vocabulary read_vocabulary(const Json& json, std::vector<BpeDefinition::Token>& tokens) {
  const auto& members = json.as_object();
  QUENCH_CHECK_AS(ErrorCode::corrupt, !members.empty(), "{}: model.vocab is empty", position(json));
  const std::size_t limit = 2 * members.size();
  Vocabulary vocabulary;
  vocabulary.reserve(members.size());
  for (const auto& [text, value] : members) {
    const std::int32_t id = read_id(value);
    QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::size_t>(id) < limit,
                    "{}: token \"{}\" has id {} in a vocabulary of {} tokens; ids must be (nearly) without holes",
                    position(value), shortened(text), id, members.size());
    QUENCH_CHECK_AS(ErrorCode::corrupt, !text.empty(), "{}: token {} is empty", position(value), id);
    if (tokens.size() <= static_cast<std::size_t>(id)) tokens.resize(static_cast<std::size_t>(id) + 1);
    auto& token = tokens[static_cast<std::size_t>(id)];
    QUENCH_CHECK_AS(ErrorCode::corrupt, token.bytes.empty(), "{}: id {} of token \"{}\" belongs to another token too",
                    position(value), id, shortened(text));
    auto bytes = from_byte_alphabet(text);
    token.mergeable = bytes.has_value();
    token.bytes = bytes ? *std::move(bytes) : text;
    vocabulary.emplace(text, id);
  }
  return vocabulary;
}

// One merge: "left right", or ["left", "right"].
std::pair<std::string_view, std::string_view> merge_texts(const Json& merge) {
  if (merge.is_array()) {
    const auto& pair = merge.as_array();
    QUENCH_CHECK_AS(ErrorCode::corrupt, pair.size() == 2, "{}: a merge has {} parts, expected 2", position(merge),
                    pair.size());
    return {pair[0].as_string(), pair[1].as_string()};
  }
  const std::string_view text = merge.as_string();
  const std::size_t space = text.find(' ');
  QUENCH_CHECK_AS(ErrorCode::corrupt, space != text.npos && text.find(' ', space + 1) == text.npos,
                  "{}: merge \"{}\" is not two tokens with a space between them", position(merge), shortened(text));
  return {text.substr(0, space), text.substr(space + 1)};
}

std::vector<BpeMerge> read_merges(const Json& json, const Vocabulary& vocabulary,
                                  const std::vector<BpeDefinition::Token>& tokens) {
  std::vector<BpeMerge> merges;
  merges.reserve(json.as_array().size());
  std::unordered_set<std::uint64_t> seen;
  seen.reserve(json.as_array().size());
  std::string joined;
  for (const Json& merge : json.as_array()) {
    if (merge.is_string() && merge.as_string().starts_with("#version")) continue;  // a header of merges.txt
    const auto [left, right] = merge_texts(merge);
    joined = left;
    joined += right;
    const auto id_of = [&](std::string_view text) {
      const auto found = vocabulary.find(text);
      QUENCH_CHECK_AS(ErrorCode::corrupt, found != vocabulary.end(),
                      "{}: merge {} (\"{}\" and \"{}\") needs \"{}\", which is not in the vocabulary", position(merge),
                      merges.size(), shortened(left), shortened(right), shortened(text));
      QUENCH_CHECK_AS(ErrorCode::unsupported, tokens[static_cast<std::size_t>(found->second)].mergeable,
                      "{}: merge {} uses \"{}\", which is not in the byte-level alphabet; only byte-level BPE is "
                      "supported",
                      position(merge), merges.size(), shortened(text));
      return found->second;
    };
    const BpeMerge ids{id_of(left), id_of(right), id_of(joined)};
    const auto key = static_cast<std::uint64_t>(ids.left) << 32 | static_cast<std::uint64_t>(ids.right);
    QUENCH_CHECK_AS(ErrorCode::corrupt, seen.insert(key).second,
                    "{}: merge {} (\"{}\" and \"{}\") repeats an earlier one", position(merge), merges.size(),
                    shortened(left), shortened(right));
    merges.push_back(ids);
  }
  return merges;
}

void require_absent(const Json& model, std::string_view key) {
  const Json* value = optional_field(model, key);
  QUENCH_CHECK_AS(ErrorCode::unsupported, value == nullptr || value->as_string().empty(),
                  "{}: model.{} \"{}\" is not supported by byte-level BPE", position(*value), key,
                  shortened(value->as_string()));
}

BpeDefinition read_model(const Json& model, Vocabulary& vocabulary) {
  // Early files leave the type out; a BPE model is then known by its merges.
  const Json* type = optional_field(model, "type");
  QUENCH_CHECK_AS(ErrorCode::unsupported,
                  type != nullptr ? type->as_string() == "BPE" : model.find("merges") != nullptr,
                  "{}: model {} is not supported; byte-level BPE is", position(model),
                  type == nullptr ? "without a type" : shortened(type->as_string()));
  require_absent(model, "continuing_subword_prefix");
  require_absent(model, "end_of_word_suffix");
  const Json* dropout = optional_field(model, "dropout");
  QUENCH_CHECK_AS(ErrorCode::unsupported, dropout == nullptr || dropout->as_double() == 0,
                  "{}: model.dropout {} is not supported: ids must not depend on chance", position(*dropout),
                  dropout->as_double());
  QUENCH_CHECK_AS(ErrorCode::unsupported, !bool_field(model, "byte_fallback", false),
                  "{}: model.byte_fallback is not supported: this is a SentencePiece model; load its tokenizer.model",
                  position(model));
  BpeDefinition definition;
  vocabulary = read_vocabulary(model.at("vocab"), definition.tokens);
  definition.merges = read_merges(model.at("merges"), vocabulary, definition.tokens);
  definition.ignore_merges = bool_field(model, "ignore_merges", false);
  definition.fuse_unk = bool_field(model, "fuse_unk", false);
  if (const Json* unk = optional_field(model, "unk_token"); unk != nullptr && !unk->as_string().empty()) {
    const auto found = vocabulary.find(unk->as_string());
    QUENCH_CHECK_AS(ErrorCode::corrupt, found != vocabulary.end(),
                    "{}: model.unk_token \"{}\" is not in the vocabulary", position(*unk), shortened(unk->as_string()));
    definition.unk_id = found->second;
  }
  return definition;
}

// Hugging Face tokenizers numbers tokens that are not in the vocabulary itself, from the vocabulary's size upwards,
// whatever the file says. A file that says otherwise describes no tokenizer that exists.
std::vector<AddedToken> read_added_tokens(const Json& json, const Vocabulary& vocabulary,
                                          const std::vector<BpeDefinition::Token>& vocabulary_tokens) {
  std::vector<AddedToken> tokens;
  std::unordered_set<std::string_view> contents;
  auto next_id = static_cast<std::int64_t>(vocabulary.size());
  for (const Json& entry : json.as_array()) {
    AddedToken token{.id = read_id(entry.at("id")),
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
    QUENCH_CHECK_AS(
        ErrorCode::corrupt,
        known != vocabulary.end() || index >= vocabulary_tokens.size() || vocabulary_tokens[index].bytes.empty(),
        "{}: id {} of added token \"{}\" belongs to another token too", position(entry), token.id,
        shortened(token.content));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

bool reads_as_nfc(const Json& normalizer) {
  const std::string& type = component_type(normalizer);
  if (type == "NFC") return true;
  QUENCH_CHECK_AS(ErrorCode::unsupported, type == "Sequence", "{}: normalizer {} is not supported; NFC is",
                  position(normalizer), shortened(type));
  const auto& components = normalizer.at("normalizers").as_array();
  return std::ranges::count_if(components, reads_as_nfc) > 0;
}

// The template for one sequence: special tokens, the sequence, special tokens.
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
      QUENCH_CHECK_AS(ErrorCode::corrupt, read_id(id) < vocab_size, "{}: post_processor: no token has id {}",
                      position(id), read_id(id));
      (after_sequence ? description.suffix : description.prefix).push_back(read_id(id));
    }
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, after_sequence, "{}: post_processor: the template leaves out sequence A",
                  position(processor));
}

void read_post_processor(const Json& processor, TokenizerDescription& description, std::int64_t vocab_size) {
  const std::string& type = component_type(processor);
  if (type == "ByteLevel") return;  // concerns offsets only
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

void check_decoder(const Json* decoder) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, decoder != nullptr, "decoder: none; ByteLevel is expected");
  const std::string& type = component_type(*decoder);
  if (type == "Sequence" && decoder->at("decoders").as_array().size() == 1) {
    return check_decoder(&decoder->at("decoders").as_array()[0]);
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, type == "ByteLevel", "{}: decoder {} is not supported; ByteLevel is",
                  position(*decoder), shortened(type));
}

TokenizerDescription read_description(const Json& root) {
  if (const Json* version = optional_field(root, "version")) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, version->as_string() == "1.0", "{}: version {} is not supported; 1.0 is",
                    position(*version), shortened(version->as_string()));
  }
  const Json& model = root.at("model");
  const Json* pre_tokenizer = root.find("pre_tokenizer");
  // The pipeline first: it tells soonest whether this is a tokenizer of another kind.
  const Json* normalizer = optional_field(root, "normalizer");
  TokenizerDescription description{.model = {},
                                   .added_tokens = {},
                                   .normalize_nfc = normalizer && reads_as_nfc(*normalizer),
                                   .pre_tokenizer = PreTokenizer(pre_tokenizer ? *pre_tokenizer : Json()),
                                   .prefix = {},
                                   .suffix = {}};
  check_decoder(optional_field(root, "decoder"));
  Vocabulary vocabulary;
  description.model = read_model(model, vocabulary);
  auto vocab_size = static_cast<std::int64_t>(description.model.tokens.size());
  if (const Json* added = optional_field(root, "added_tokens")) {
    description.added_tokens = read_added_tokens(*added, vocabulary, description.model.tokens);
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
