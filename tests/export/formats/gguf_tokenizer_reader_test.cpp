// The tokenizer in a GGUF file's metadata: what was written is read back, and faults are named.

#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/formats/gguf/tokenizer.h"
#include "export/formats/gguf/tokenizer_reader.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;
using Metadata = std::vector<std::pair<std::string, GgufValue>>;

constexpr std::string_view kTexts[] = {"",
                                       "a",
                                       "the lazy dog",
                                       "  The 1234 dogs' day,\n\n\tit's over!  ",
                                       "<|end_of_text|> x<|end_of_text|>",
                                       "caf\u00E9 \u65E5\u672C \U0001F600"};

GgufHead head_of(const Metadata& metadata) {
  const std::string bytes = gguf_head(metadata, {});
  return parse_gguf_head({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, bytes.size(), "m.gguf")
      .value();
}

JsonTokenizer tokenizer_in(const Metadata& metadata) {
  return JsonTokenizer(tokenizer_files(head_of(metadata), "m.gguf"));
}

std::string refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

// Written metadata of a byte-level BPE of 300 tokens with two special tokens.
Metadata written(const TempDir& folder, std::int64_t vocab_size = 280) {
  const std::string_view text = "the quick brown fox jumps over the lazy dog, over and over the days of 1234 dogs";
  BpeTrainingOptions options;
  options.vocab_size = 270;
  train_bpe(std::span(&text, 1), options)->save(folder.path());
  nn::ModelConfig config;  // names no special tokens
  config.vocab_size = vocab_size;
  return gguf_tokenizer(folder.path(), config);
}

TEST(GgufTokenizerReader, WhatWasWrittenEncodesAlike) {
  const TempDir folder;
  const JsonTokenizer read = tokenizer_in(written(folder));
  const auto original = load_tokenizer(folder.path());
  EXPECT_EQ(read.eos_id(), original->eos_id());
  for (const std::string_view text : kTexts) {
    const auto ids = original->encode(text);
    EXPECT_EQ(read.encode(text), ids) << text;
    EXPECT_EQ(read.decode(ids), original->decode(ids)) << text;
  }
}

// Tokens of one character, and "ab", "abc" and "bc" with a score each; a text begins with <s>.
Metadata sentence_pieces(float ab, float bc) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> kinds = {2, 3, 3};
  std::vector<float> scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    kinds.push_back(6);
    scores.push_back(0);
  }
  const auto add = [&](const char* text, float score) {
    tokens.emplace_back(text);
    kinds.push_back(1);
    scores.push_back(score);
  };
  add("ab", ab), add("bc", bc), add("abc", -8);
  for (const char* text : {"a", "b", "c", "\u2581"}) add(text, -100);
  return {{"tokenizer.ggml.model", "llama"},      {"tokenizer.ggml.tokens", tokens},
          {"tokenizer.ggml.token_type", kinds},   {"tokenizer.ggml.scores", scores},
          {"tokenizer.ggml.bos_token_id", 1u},    {"tokenizer.ggml.eos_token_id", 2u},
          {"tokenizer.ggml.unknown_token_id", 0u}};
}

TEST(GgufTokenizerReader, SentencePieceMergesInTheOrderOfScores) {
  // 259 ab, 260 bc, 261 abc, 262 a, 263 b, 264 c, 265 the space
  const JsonTokenizer first = tokenizer_in(sentence_pieces(-1, -2)), second = tokenizer_in(sentence_pieces(-2, -1));
  EXPECT_THAT(first.encode("abc"), ElementsAre(1, 265, 261));
  EXPECT_THAT(first.encode("abb"), ElementsAre(1, 265, 259, 263));
  EXPECT_THAT(second.encode("abcb"), ElementsAre(1, 265, 261, 263)) << "abc can be made of a and bc";
  EXPECT_THAT(second.encode("\u00E9"), ElementsAre(1, 265, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(first.decode(first.encode("abc b\u00E9", {.add_special_tokens = false})), "abc b\u00E9");
  Metadata metadata = sentence_pieces(-1, -2);
  metadata.emplace_back("tokenizer.ggml.add_space_prefix", false);
  metadata.emplace_back("tokenizer.ggml.add_bos_token", false);
  metadata.emplace_back("tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT(tokenizer_in(metadata).encode("abc"), ElementsAre(261, 2));
}

// llama.cpp merges the first pair of the text where scores are equal.
TEST(GgufTokenizerReader, SpacesOfEqualScoresMergeFromLeftToRight) {
  Metadata metadata = sentence_pieces(-1, -2);
  for (auto& [key, value] : metadata) {
    if (auto* texts = std::get_if<std::vector<std::string>>(&value))
      texts->insert(texts->end(), {"\u2581\u2581", "\u2581\u2581\u2581"});  // 266, 267
    if (auto* kinds = std::get_if<std::vector<std::int32_t>>(&value)) kinds->insert(kinds->end(), {1, 1});
    if (auto* scores = std::get_if<std::vector<float>>(&value)) scores->insert(scores->end(), {0.0f, 0.0f});
  }
  EXPECT_THAT(tokenizer_in(metadata).encode("     "), ElementsAre(1, 267, 267));
  EXPECT_THAT(tokenizer_in(metadata).encode("      a"), ElementsAre(1, 267, 267, 265, 262));
}

TEST(GgufTokenizerReader, FaultsAreNamedByFileAndKey) {
  struct Fault {
    std::string key;
    std::optional<GgufValue> value;
    std::string message;
  };
  const TempDir folder;
  const auto check = [](Metadata metadata, const Fault& fault) {
    std::erase_if(metadata, [&](const auto& entry) { return entry.first == "tokenizer.ggml." + fault.key; });
    if (fault.value) metadata.emplace_back("tokenizer.ggml." + fault.key, *fault.value);
    const std::string said = refused([&] { (void)tokenizer_in(metadata); });
    EXPECT_THAT(said, HasSubstr(fault.message));
    EXPECT_THAT(said, HasSubstr("m.gguf"));
  };
  using Texts = std::vector<std::string>;
  for (const Fault& fault : {
           Fault{"model", std::string("t5"), "tokenizer.ggml.model is \"t5\"; gpt2 and llama can be read"},
           Fault{"model", 3u, "tokenizer.ggml.model is 3, expected a string"},
           Fault{"pre", std::string("chatglm"), "tokenizer.ggml.pre is \"chatglm\", an unknown pre-tokenizer"},
           Fault{"pre", std::nullopt, "tokenizer.ggml.pre is absent"},
           Fault{"tokens", std::nullopt, "tokenizer.ggml.tokens names no tokens"},
           Fault{"tokens", std::string("a"), "tokenizer.ggml.tokens is string, expected a list of texts"},
           Fault{"tokens", std::vector<std::int32_t>{1}, "tokenizer.ggml.tokens holds integer, expected texts"},
           Fault{"tokens", Texts{"a"}, "tokenizer.ggml.token_type has 280 items, tokenizer.ggml.tokens has 1"},
           Fault{"tokens", Texts(280, "a"), "tokenizer.ggml.tokens has \"a\" twice, as 0 and 1"},
           Fault{"token_type", std::vector<float>{1}, "tokenizer.ggml.token_type holds number, expected integers"},
           Fault{"scores", std::vector<float>{1}, "tokenizer.ggml.scores has 1 items"},
           Fault{"merges", std::vector<std::int32_t>{1}, "tokenizer.ggml.merges holds integer, expected texts"},
           Fault{"merges", Texts{"a"}, "tokenizer.json"},
           Fault{"eos_token_id", 280u, "tokenizer.ggml.eos_token_id is 280, but there are 280 tokens"},
           Fault{"add_bos_token", 1u, "tokenizer.ggml.add_bos_token is 1, expected true or false"},
       })
    check(written(folder), fault);
  for (const Fault& fault : {
           Fault{"scores", std::nullopt, "it has no tokenizer.ggml.scores"},
           Fault{"scores", std::vector<float>(266, NAN), "tokenizer.ggml.scores holds nan"},
           Fault{"token_type", std::vector<std::int32_t>(266, 1), "tokenizer.ggml.token_type has no unknown token"},
           Fault{"token_type", std::nullopt, "tokenizer.ggml.token_type has no unknown token"},
       })
    check(sentence_pieces(-1, -2), fault);
  Metadata metadata = sentence_pieces(-1, -2);
  std::get<std::vector<std::string>>(metadata[1].second)[265] = std::string(1025, 'x');
  check(metadata, {"general", std::nullopt, "token 265 of tokenizer.ggml.tokens has 1025 bytes"});
  metadata.emplace_back("tokenizer.chat_template", 1u);
  EXPECT_THAT(refused([&] { (void)tokenizer_in(sentence_pieces(-1, -2)); }), "nothing was refused");
  metadata = sentence_pieces(-1, -2);
  metadata.emplace_back("tokenizer.chat_template", 1u);
  EXPECT_THAT(refused([&] { (void)tokenizer_in(metadata); }), HasSubstr("tokenizer.chat_template is integer"));
}

TEST(GgufTokenizerReader, TheFileIsAFoldersTokenizerWhereNoOtherIs) {
  const TempDir source, folder;
  const Metadata metadata = written(source);
  EXPECT_FALSE(holds_tokenizer(folder.path()));
  write_file(folder / "m.gguf", gguf_head({{"tokenizer.ggml.model", "none"}}, {}));
  EXPECT_FALSE(holds_tokenizer(folder.path()));
  EXPECT_THAT(refused([&] { (void)load_tokenizer(folder.path()); }), HasSubstr("neither tokenizer.json nor"));
  write_file(folder / "m.gguf", gguf_head(metadata, {}));
  EXPECT_TRUE(holds_tokenizer(folder.path()));
  EXPECT_EQ(load_tokenizer(folder.path())->encode("the dogs"), load_tokenizer(source.path())->encode("the dogs"));
  EXPECT_EQ(load_tokenizer(folder / "m.gguf")->encode("the dogs"), load_tokenizer(source.path())->encode("the dogs"));
  // Saved, it is a tokenizer like others.
  const TempDir saved;
  load_tokenizer(folder.path())->save(saved.path());
  EXPECT_EQ(load_tokenizer(saved.path())->encode("the dogs"), load_tokenizer(source.path())->encode("the dogs"));
  // A tokenizer.json next to it goes first.
  write_file(folder / "tokenizer.json", "{}");
  EXPECT_THAT(refused([&] { (void)load_tokenizer(folder.path()); }), HasSubstr("tokenizer.json"));
}

}  // namespace
}  // namespace quench
