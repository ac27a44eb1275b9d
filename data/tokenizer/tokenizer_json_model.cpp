#include "data/tokenizer/tokenizer_json_model.h"

#include <cmath>
#include <limits>
#include <unordered_set>

#include "data/tokenizer/model/bpe_model.h"
#include "data/tokenizer/model/byte_alphabet.h"
#include "data/tokenizer/model/unigram_model.h"
#include "data/tokenizer/text/json_fields.h"

namespace quench {
namespace {

Vocabulary read_vocabulary(const Json& json, bool byte_level, std::vector<BpeDefinition::Token>& tokens) {
  const auto& members = json.as_object();
  QUENCH_CHECK_AS(ErrorCode::corrupt, !members.empty(), "{}: model.vocab is empty", position(json));
  const std::size_t limit = 2 * members.size();
  Vocabulary vocabulary;
  vocabulary.reserve(members.size());
  for (const auto& [text, value] : members) {
    const std::int32_t id = read_token_id(value);
    QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::size_t>(id) < limit,
                    "{}: token \"{}\" has id {} in a vocabulary of {} tokens; ids must be (nearly) without holes",
                    position(value), shortened(text), id, members.size());
    QUENCH_CHECK_AS(ErrorCode::corrupt, !text.empty(), "{}: token {} is empty", position(value), id);
    if (tokens.size() <= static_cast<std::size_t>(id)) tokens.resize(static_cast<std::size_t>(id) + 1);
    auto& token = tokens[static_cast<std::size_t>(id)];
    QUENCH_CHECK_AS(ErrorCode::corrupt, token.bytes.empty(), "{}: id {} of token \"{}\" belongs to another token too",
                    position(value), id, shortened(text));
    auto bytes = byte_level ? from_byte_alphabet(text) : text;
    token.mergeable = bytes.has_value();
    token.bytes = bytes ? *std::move(bytes) : text;
    vocabulary.emplace(text, id);
  }
  return vocabulary;
}

// Merge: "left right", or ["left", "right"].
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
    if (merge.is_string() && merge.as_string().starts_with("#version")) continue;  // header of merges.txt
    const auto [left, right] = merge_texts(merge);
    joined = left;
    joined += right;
    const auto id_of = [&](std::string_view text) {
      const auto found = vocabulary.find(text);
      QUENCH_CHECK_AS(ErrorCode::corrupt, found != vocabulary.end(),
                      "{}: merge {} (\"{}\" and \"{}\") needs \"{}\", which is not in the vocabulary", position(merge),
                      merges.size(), shortened(left), shortened(right), shortened(text));
      QUENCH_CHECK_AS(ErrorCode::unsupported, tokens[static_cast<std::size_t>(found->second)].mergeable,
                      "{}: merge {} uses \"{}\", which is not in the byte-level alphabet that the decoder "
                      "names",
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
                  "{}: model.{} \"{}\" is not supported", position(*value), key, shortened(value->as_string()));
}

BpeDefinition read_bpe(const Json& model, bool byte_level, Vocabulary& vocabulary) {
  require_absent(model, "continuing_subword_prefix");
  require_absent(model, "end_of_word_suffix");
  const Json* dropout = optional_field(model, "dropout");
  QUENCH_CHECK_AS(ErrorCode::unsupported, dropout == nullptr || dropout->as_double() == 0,
                  "{}: model.dropout {} is not supported: ids must not depend on chance", position(*dropout),
                  dropout->as_double());
  BpeDefinition definition;
  definition.byte_level = byte_level;
  definition.byte_fallback = bool_field(model, "byte_fallback", false);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !(byte_level && definition.byte_fallback),
                  "{}: model.byte_fallback is not supported together with a decoder ByteLevel", position(model));
  vocabulary = read_vocabulary(model.at("vocab"), byte_level, definition.tokens);
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

UnigramDefinition read_unigram(const Json& model, Vocabulary& vocabulary) {
  UnigramDefinition definition;
  definition.byte_fallback = bool_field(model, "byte_fallback", false);
  for (const Json& entry : model.at("vocab").as_array()) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, entry.as_array().size() == 2, "{}: a token has {} fields, expected 2",
                    position(entry), entry.as_array().size());
    const std::string& text = entry.as_array()[0].as_string();
    const double score = entry.as_array()[1].as_double();
    const auto id = static_cast<std::int32_t>(definition.tokens.size());
    QUENCH_CHECK_AS(ErrorCode::corrupt, !text.empty() && text.size() <= UnigramDefinition::kMaxTokenBytes,
                    "{}: token {} has {} bytes, expected 1 to {}", position(entry), id, text.size(),
                    UnigramDefinition::kMaxTokenBytes);
    QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(score), "{}: the score of token {} is not finite",
                    position(entry), id);
    QUENCH_CHECK_AS(ErrorCode::corrupt, vocabulary.emplace(text, id).second, "{}: token {} \"{}\" is listed twice",
                    position(entry), id, shortened(text));
    definition.tokens.push_back({text, score});
  }
  const Json* unk = optional_field(model, "unk_id");
  QUENCH_CHECK_AS(ErrorCode::unsupported, unk != nullptr, "{}: a Unigram model without an unk_id is not supported",
                  position(model));
  definition.unk_id = read_token_id(*unk);
  QUENCH_CHECK_AS(ErrorCode::corrupt, static_cast<std::size_t>(definition.unk_id) < definition.tokens.size(),
                  "{}: model.unk_id {} is not in the vocabulary", position(*unk), definition.unk_id);
  return definition;
}

std::unique_ptr<TokenModel> open_bpe(const Json& model, bool byte_level, Vocabulary& vocabulary,
                                     std::vector<std::string>& tokens) {
  BpeDefinition definition = read_bpe(model, byte_level, vocabulary);
  auto result = std::make_unique<BpeModel>(definition);
  for (auto& token : definition.tokens) tokens.push_back(std::move(token.bytes));
  return result;
}

std::unique_ptr<TokenModel> open_unigram(const Json& model, bool, Vocabulary& vocabulary,
                                         std::vector<std::string>& tokens) {
  const UnigramDefinition definition = read_unigram(model, vocabulary);
  for (const auto& token : definition.tokens) tokens.push_back(token.text);
  return std::make_unique<UnigramModel>(definition);
}

// Early files omit the type; the model is then detected by a unique key.
bool is_untyped(const Json& model, const TokenModelKind& kind) {
  return !kind.own_key.empty() && model.find(kind.own_key) != nullptr;
}

}  // namespace

const ChoiceTable<TokenModelKind>& token_model_kinds() {
  static const ChoiceTable<TokenModelKind> table("token model",
                                                 {{"BPE", open_bpe, true, "merges"}, {"Unigram", open_unigram}});
  return table;
}

std::int32_t read_token_id(const Json& value) {
  const std::int64_t id = value.as_int();
  QUENCH_CHECK_AS(ErrorCode::corrupt, id >= 0 && id <= std::numeric_limits<std::int32_t>::max() - 1,
                  "{}: token id {} is out of range", position(value), id);
  return static_cast<std::int32_t>(id);
}

std::unique_ptr<TokenModel> read_token_model(const Json& model, bool byte_level, Vocabulary& vocabulary,
                                             std::vector<std::string>& tokens) {
  const Json* type = optional_field(model, "type");
  const TokenModelKind* kind = nullptr;
  for (const TokenModelKind& known : token_model_kinds())
    if (type != nullptr ? type->as_string() == known.name : is_untyped(model, known)) kind = &known;
  QUENCH_CHECK_AS(ErrorCode::unsupported, kind != nullptr && (kind->takes_byte_level || !byte_level),
                  "{}: model {} is not supported{}; {} are", position(model),
                  type == nullptr ? "without a type" : shortened(type->as_string()),
                  byte_level ? " together with a decoder ByteLevel" : "",
                  fmt::join(token_model_kinds().names(), " and "));
  return kind->read(model, byte_level, vocabulary, tokens);
}

}  // namespace quench
