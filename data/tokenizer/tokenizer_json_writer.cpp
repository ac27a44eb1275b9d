#include "data/tokenizer/tokenizer_json_writer.h"

#include "core/json/json.h"
#include "data/tokenizer/model/byte_alphabet.h"

namespace quench {
namespace {

Json byte_level(bool use_regex) {
  return Json::Object{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer(std::string_view expression) {
  if (expression.empty()) return byte_level(false);
  const Json split = Json::Object{
      {"type", "Split"}, {"pattern", Json::Object{{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
  return Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{split, byte_level(false)}}};
}

Json post_processor(const std::string& bos, std::int64_t id) {
  if (bos.empty()) return nullptr;
  const auto special = [&] { return Json::Object{{"SpecialToken", Json::Object{{"id", bos}, {"type_id", 0}}}}; };
  const auto sequence = [](const char* name, int type) {
    return Json::Object{{"Sequence", Json::Object{{"id", name}, {"type_id", type}}}};
  };
  return Json::Object{
      {"type", "TemplateProcessing"},
      {"single", Json::Array{special(), sequence("A", 0)}},
      {"pair", Json::Array{special(), sequence("A", 0), sequence("B", 1)}},
      {"special_tokens",
       Json::Object{{bos, Json::Object{{"id", bos}, {"ids", Json::Array{id}}, {"tokens", Json::Array{bos}}}}}}};
}

}  // namespace

TokenizerFiles write_tokenizer_json(const NewTokenizer& tokenizer) {
  Json::Object vocabulary;
  for (const std::string& token : tokenizer.tokens) {
    vocabulary.emplace_back(to_byte_alphabet(token), static_cast<std::int64_t>(vocabulary.size()));
  }
  Json::Array added;
  std::int64_t bos_id = -1;
  for (const std::string& content : tokenizer.special_tokens) {
    const auto id = static_cast<std::int64_t>(vocabulary.size() + added.size());
    if (content == tokenizer.bos_token) bos_id = id;
    added.push_back(Json::Object{{"id", id},
                                 {"content", content},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", true}});
  }

  Json::Array merges;
  for (const auto& [left, right] : tokenizer.merges) {
    merges.push_back(Json::Array{to_byte_alphabet(left), to_byte_alphabet(right)});
  }
  const Json root = Json::Object{{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", std::move(added)},
                                 {"normalizer", nullptr},
                                 {"pre_tokenizer", pre_tokenizer(tokenizer.split_expression)},
                                 {"post_processor", post_processor(tokenizer.bos_token, bos_id)},
                                 {"decoder", byte_level(true)},
                                 {"model", Json::Object{{"type", "BPE"},
                                                        {"dropout", nullptr},
                                                        {"unk_token", nullptr},
                                                        {"continuing_subword_prefix", nullptr},
                                                        {"end_of_word_suffix", nullptr},
                                                        {"fuse_unk", false},
                                                        {"byte_fallback", false},
                                                        {"ignore_merges", false},
                                                        {"vocab", std::move(vocabulary)},
                                                        {"merges", std::move(merges)}}}};
  Json config = Json::Object{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!tokenizer.bos_token.empty()) config.set("bos_token", tokenizer.bos_token);
  if (!tokenizer.eos_token.empty()) config.set("eos_token", tokenizer.eos_token);
  if (!tokenizer.pad_token.empty()) config.set("pad_token", tokenizer.pad_token);
  return {"tokenizer.json",
          {{"tokenizer.json", root.dump(2) + "\n"}, {"tokenizer_config.json", config.dump(2) + "\n"}}};
}

}  // namespace quench
