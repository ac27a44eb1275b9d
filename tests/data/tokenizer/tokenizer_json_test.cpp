// Accepted and refused content of tokenizer.json.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/tokenizer/bpe_fixtures.h"

namespace quench {
namespace {

using testing::added_token;
using ::testing::AllOf;
using testing::byte_level;
using testing::description;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;
using testing::load;
using testing::load_error;
using ::testing::StartsWith;

Json& model(Json& json) {
  return *json.find("model");
}

TEST(TokenizerJson, BothMergeStylesGiveTheSameTokenizer) {
  const Json pairs = description({{"a", "b"}, {"ab", "c"}, {" ", "a"}});
  Json strings = pairs;
  Json::Array list{"#version: 0.2"};
  for (const Json& merge : pairs.at("model").at("merges").as_array()) {
    list.push_back(merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string());
  }
  model(strings).set("merges", list);
  for (const char* text : {"abc", " abc", "cab ab", ""})
    EXPECT_EQ(load(pairs)->encode(text), load(strings)->encode(text));
  EXPECT_EQ(load(strings)->encode("abc"), Ids{257});
}

TEST(TokenizerJson, AModelWithoutATypeIsBpeIfItHasMerges) {
  Json json = description({{"a", "b"}});
  model(json).erase("type");
  EXPECT_EQ(load(json)->encode("ab"), Ids{256});
  model(json).erase("merges");
  EXPECT_THAT(load_error(json), StartsWith("unsupported: tokenizer.json: line"));
}

TEST(TokenizerJson, EmptyStringsForPrefixSuffixAndUnknownTokenAreNone) {
  Json json = description({{"a", "b"}});
  for (const char* key : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) model(json).set(key, "");
  EXPECT_EQ(load(json)->encode("ab"), Ids{256});
}

TEST(TokenizerJson, RefusesComponentsByName) {
  const auto with = [](const char* key, const char* type) {
    Json json = description();
    json.set(key, Json::Object{{"type", type}});
    return load_error(json);
  };
  EXPECT_THAT(with("normalizer", "Precompiled"),
              AllOf(StartsWith("unsupported: tokenizer.json: line"), HasSubstr("Precompiled")));
  EXPECT_THAT(with("normalizer", "NFKC"), HasSubstr("normalizer NFKC"));
  EXPECT_THAT(with("pre_tokenizer", "Whitespace"), HasSubstr("pre_tokenizer Whitespace"));
  EXPECT_THAT(with("post_processor", "BertProcessing"), HasSubstr("post_processor BertProcessing"));
  EXPECT_THAT(with("decoder", "WordPiece"), HasSubstr("decoder WordPiece"));
  EXPECT_THAT(with("model", "Unigram"), HasSubstr("model Unigram is not supported together with"));
  EXPECT_THAT(with("model", "WordPiece"), HasSubstr("model WordPiece"));
  Json json = description();
  json.set("normalizer",
           Json::Object{{"type", "Sequence"}, {"normalizers", Json::Array{Json::Object{{"type", "Lowercase"}}}}});
  EXPECT_THAT(load_error(json), HasSubstr("normalizer Lowercase"));
  json = description();
  json.set("pre_tokenizer", nullptr);
  EXPECT_THAT(load_error(json), HasSubstr("pre_tokenizer: none"));
  json = description();
  json.set("decoder", nullptr);
  EXPECT_THAT(load_error(json), HasSubstr("decoder: none"));
}

TEST(TokenizerJson, RefusesModelsWhoseIdsItWouldNotReproduce) {
  const auto with = [](const char* key, Json value) {
    Json json = description();
    model(json).set(key, std::move(value));
    return load_error(json);
  };
  EXPECT_THAT(with("dropout", 0.1), HasSubstr("model.dropout 0.1"));
  EXPECT_EQ(with("dropout", 0.0), "");
  EXPECT_THAT(with("byte_fallback", true), HasSubstr("model.byte_fallback"));
  EXPECT_THAT(with("continuing_subword_prefix", "##"), HasSubstr("continuing_subword_prefix \"##\""));
  EXPECT_THAT(with("end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(with("unk_token", "<unk>"), HasSubstr("unk_token \"<unk>\" is not in the vocabulary"));
  Json json = description();
  json.set("version", "2.0");
  EXPECT_THAT(load_error(json), HasSubstr("version 2.0"));
}

TEST(TokenizerJson, DoesNotRunExpressionsFromFiles) {
  const auto split = [](const char* expression, const char* behavior, bool invert) {
    const Json step = Json::Object{{"type", "Split"},
                                   {"pattern", Json::Object{{"Regex", expression}}},
                                   {"behavior", behavior},
                                   {"invert", invert}};
    return load_error(description(
        {}, Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{step, byte_level(false, false)}}}));
  };
  EXPECT_THAT(split("(a+)+$", "Isolated", false), AllOf(StartsWith("unsupported"), HasSubstr("'(a+)+$'")));
  EXPECT_THAT(split(R"(\p{N})", "MergedWithNext", false), HasSubstr("behavior MergedWithNext"));
  // Removing what does not match would lose text unless everything matches.
  EXPECT_THAT(split(R"(\p{N})", "Removed", true), HasSubstr("behavior Removed"));
  EXPECT_EQ(split(R"(\p{N})", "Isolated", false), "");
  EXPECT_EQ(split(std::string(SplitPattern::named("llama3").expression()).c_str(), "Removed", true), "");

  const Json by_string = Json::Object{
      {"type", "Split"}, {"pattern", Json::Object{{"String", " "}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_THAT(
      load_error(description(
          {}, Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{by_string, byte_level(false, false)}}})),
      HasSubstr("fixed string"));
  EXPECT_THAT(
      load_error(description(
          {}, Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{byte_level(false, false), by_string}}})),
      HasSubstr("ByteLevel is not the last component"));
}

TEST(TokenizerJson, RefusesBadIds) {
  const auto with = [](const char* token, Json id) {
    Json json = description();
    model(json).find("vocab")->set(token, std::move(id));
    return load_error(json);
  };
  EXPECT_EQ(with("ab", 256), "");
  EXPECT_EQ(with("ab", 300), "");  // a hole is harmless
  EXPECT_THAT(with("ab", 7), AllOf(StartsWith("corrupt: tokenizer.json: line"),
                                   HasSubstr("id 7 of token \"ab\" belongs to another token too")));
  EXPECT_THAT(with("ab", 2000), HasSubstr("id 2000 in a vocabulary of 257 tokens"));
  EXPECT_THAT(with("ab", -1), HasSubstr("token id -1 is out of range"));
  EXPECT_THAT(with("ab", std::int64_t{1} << 31), HasSubstr("out of range"));
  EXPECT_THAT(with("ab", 256.5), HasSubstr("expected"));
  EXPECT_THAT(with("", 256), HasSubstr("token 256 is empty"));
  Json json = description();
  model(json).set("vocab", Json::object());
  EXPECT_THAT(load_error(json), HasSubstr("model.vocab is empty"));
}

TEST(TokenizerJson, RefusesBadMerges) {
  const auto with = [](Json merge) {
    Json json = description({{"a", "b"}});
    model(json).find("merges")->push_back(std::move(merge));
    return load_error(json);
  };
  EXPECT_THAT(with(Json::Array{"a", "zz"}),
              AllOf(StartsWith("corrupt"), HasSubstr("needs \"zz\", which is not in the vocabulary")));
  EXPECT_THAT(with(Json::Array{"b", "a"}), HasSubstr("needs \"ba\""));
  EXPECT_THAT(with(Json::Array{"a", "b"}), HasSubstr("repeats an earlier one"));
  EXPECT_THAT(with(Json::Array{"a"}), HasSubstr("1 parts, expected 2"));
  EXPECT_THAT(with("a b c"), HasSubstr("not two tokens"));
  EXPECT_THAT(with("ab"), HasSubstr("not two tokens"));
  EXPECT_THAT(with(3), HasSubstr("expected"));
  Json json = description();
  model(json).find("vocab")->set("\u2581", 256);
  model(json).find("vocab")->set("\u2581a", 257);
  model(json).find("merges")->push_back(Json::Array{"\u2581", "a"});
  EXPECT_THAT(load_error(json), HasSubstr("not in the byte-level alphabet"));
}

TEST(TokenizerJson, RefusesBadAddedTokens) {
  const auto with = [](Json::Array tokens) {
    Json json = description();
    json.set("added_tokens", std::move(tokens));
    return load_error(json);
  };
  EXPECT_EQ(with({added_token(256, "<s>"), added_token(257, "</s>"), added_token(97, "a")}), "");
  EXPECT_THAT(with({added_token(256, "")}), HasSubstr("its content has 0 bytes"));
  EXPECT_THAT(with({added_token(256, std::string(2000, 'x').c_str())}), HasSubstr("its content has 2000 bytes"));
  EXPECT_THAT(with({added_token(256, "<s>"), added_token(257, "<s>")}), HasSubstr("\"<s>\" is listed twice"));
  EXPECT_THAT(with({added_token(257, "<s>")}), HasSubstr("\"<s>\" has id 257, expected 256"));
  EXPECT_THAT(with({added_token(98, "a")}), HasSubstr("\"a\" has id 98, expected 97 as in the vocabulary"));
}

TEST(TokenizerJson, TemplateSurroundsTheText) {
  Json json = description();
  json.set("added_tokens", Json::Array{added_token(256, "<s>", {"special"}), added_token(257, "</s>", {"special"})});
  const auto special = [](const char* name) {
    return Json::Object{{"SpecialToken", Json::Object{{"id", name}, {"type_id", 0}}}};
  };
  const Json sequence = Json::Object{{"Sequence", Json::Object{{"id", "A"}, {"type_id", 0}}}};
  const auto template_of = [&](Json::Array single) {
    return Json::Object{
        {"type", "TemplateProcessing"},
        {"single", std::move(single)},
        {"pair", Json::array()},
        {"special_tokens", Json::Object{{"<s>", Json::Object{{"id", "<s>"}, {"ids", Json::Array{256}}}},
                                        {"</s>", Json::Object{{"id", "</s>"}, {"ids", Json::Array{257, 10}}}},
                                        {"<far>", Json::Object{{"id", "<far>"}, {"ids", Json::Array{258}}}}}}};
  };
  json.set("post_processor", template_of({special("<s>"), sequence, special("</s>")}));
  EXPECT_EQ(load(json)->encode("a"), (Ids{256, 97, 257, 10}));
  EXPECT_EQ(load(json)->encode("a", {.add_special_tokens = false}), Ids{97});
  EXPECT_EQ(load(json)->bos_id(), 256);

  const Json whole =
      Json::Object{{"type", "Sequence"},
                   {"processors", Json::Array{byte_level(true, true), template_of({special("<s>"), sequence})}}};
  json.set("post_processor", whole);
  EXPECT_EQ(load(json)->encode("a"), (Ids{256, 97}));

  json.set("post_processor", template_of({special("<s>")}));
  EXPECT_THAT(load_error(json), HasSubstr("leaves out sequence A"));
  json.set("post_processor", template_of({sequence, sequence}));
  EXPECT_THAT(load_error(json), HasSubstr("sequence A once"));
  json.set("post_processor", template_of({special("<x>"), sequence}));
  EXPECT_THAT(load_error(json), HasSubstr("\"<x>\" is not among its special_tokens"));
  json.set("post_processor", template_of({special("<far>"), sequence}));
  EXPECT_THAT(load_error(json), HasSubstr("no token has id 258"));
}

TEST(TokenizerJson, ErrorsNameTheLine) {
  const auto load_text = [](const std::string& text) {
    return error_of([&] { JsonTokenizer(TokenizerFiles("a/tokenizer.json", {{"tokenizer.json", text}})); });
  };
  EXPECT_THAT(load_text("{\n \"model\": {\n  \"type\":\n \"WordLevel\"}}"), HasSubstr("a/tokenizer.json: "));
  EXPECT_THAT(load_text("{\n \"model\": [\n"), StartsWith("corrupt: a/tokenizer.json:"));
  const std::string head = R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0,
    "b": 0}, "merges": []}})";
  EXPECT_THAT(load_text(head), StartsWith("corrupt: a/tokenizer.json: line 3: id 0 of token \"b\""));
  EXPECT_THAT(load_text(R"({"model": {"vocab": {"a": 0, "a": 1}}})"), HasSubstr("duplicate key"));
}

}  // namespace
}  // namespace quench
