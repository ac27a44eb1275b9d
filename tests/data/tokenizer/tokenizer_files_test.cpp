// Loading from and saving to files, special ids, and decoding as a stream.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/system/utf8.h"
#include "data/tokenizer/stream_decoder.h"
#include "tests/data/tokenizer/bpe_fixtures.h"
#include "tests/testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using testing::added_token;
using ::testing::AllOf;
using testing::description;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;
using testing::load;
using ::testing::StartsWith;
using testing::TempDir;
using testing::write_file;

Json with_specials() {
  Json json = description({{"a", "b"}});
  json.set("added_tokens", Json::Array{added_token(257, "<s>", {"special"}), added_token(258, "</s>", {"special"}),
                                       added_token(259, "<x>", {"special"}), added_token(260, "<pad>", {"special"})});
  return json;
}

TEST(ByteTokenizer, IdsAreBytes) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->bos_id(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 257);
  EXPECT_EQ(tokenizer->pad_id(), 258);
  EXPECT_EQ(tokenizer->encode(std::string("a\0\xFF\xC3\xA9", 5)), (Ids{256, 'a', 0, 0xFF, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->encode("x<|end_of_text|>"), (Ids{256, 'x', 257}));
  EXPECT_EQ(tokenizer->encode("<|pad|>", {.add_special_tokens = false, .parse_special = false}).size(), 7u);
}

TEST(LoadTokenizer, SpecialTokensThatOnlyTheSettingsNameAreNamedInAWarning) {
  const TempDir folder;
  write_file(folder / "tokenizer.json", with_specials().dump(2));
  const auto warning = [&](const std::string& config, const std::string& map = "{}") {
    write_file(folder / "tokenizer_config.json", config);
    write_file(folder / "special_tokens_map.json", map);
    const testing::CapturedLog log;
    (void)load_tokenizer(folder.path());
    return log.text();
  };
  EXPECT_EQ(warning(R"({"eos_token": "</s>", "additional_special_tokens": ["<x>"]})"), "");
  for (const char* config : {R"({"additional_special_tokens": ["<x>", "<turn>", {"content": "<call>"}]})",
                             R"({"extra_special_tokens": {"turn_token": "<turn>", "call_token": "<call>"}})",
                             R"({"extra_special_tokens": ["<turn>", "<call>"]})",
                             R"({"added_tokens_decoder": {"261": {"content": "<turn>", "special": true},
            "262": {"content": "<call>", "special": true}, "263": {"content": "plain", "special": false}}})",
                             R"({"sep_token": "<turn>", "mask_token": {"content": "<call>"}})"})
    EXPECT_THAT(warning(config), AllOf(HasSubstr("<turn>, <call>;"), HasSubstr("plain text"))) << config;
  EXPECT_THAT(warning("{}", R"({"additional_special_tokens": ["<turn>"]})"), HasSubstr("<turn>"));
  EXPECT_THAT(warning(R"({"eos_token": "a"})"), HasSubstr("plain text here: a;")) << "in the vocabulary, not special";
}

TEST(LoadTokenizer, ASavedTokenizerIsTheSame) {
  const TempDir folder;
  write_file(folder / "tokenizer.json", with_specials().dump(2));
  write_file(folder / "tokenizer_config.json",
             R"({"bos_token": "<x>", "eos_token": {"content": "</s>"}, "chat_template": "{{ x }}"})");
  write_file(folder / "chat_template.jinja", "{{ x }}");
  const auto original = load_tokenizer(folder.path());
  original->save(folder / "copy/of it");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    EXPECT_EQ(testing::read_file(folder / "copy/of it" / name), testing::read_file(folder / name));
  }
  const auto copy = load_tokenizer(folder / "copy/of it/tokenizer.json");
  EXPECT_EQ(copy->fingerprint(), original->fingerprint());
  EXPECT_EQ(copy->encode("abc<s>"), original->encode("abc<s>"));
  EXPECT_EQ(copy->bos_id(), 259);

  const auto bytes = load_tokenizer("bytes");
  bytes->save(folder / "bytes");
  const auto bytes_copy = load_tokenizer(folder / "bytes");
  EXPECT_EQ(bytes_copy->fingerprint(), bytes->fingerprint());
  EXPECT_EQ(bytes_copy->encode("abc"), bytes->encode("abc"));
  EXPECT_NE(bytes->fingerprint(), original->fingerprint());
}

TEST(LoadTokenizer, FingerprintDependsOnWhatIdsDependOn) {
  const auto plain = load(with_specials());
  EXPECT_EQ(plain->fingerprint(), load(with_specials())->fingerprint());
  EXPECT_NE(plain->fingerprint(), load(description({{"a", "b"}}))->fingerprint());
  EXPECT_NE(plain->fingerprint(), load(with_specials(), R"({"eos_token": "<x>"})")->fingerprint());
  EXPECT_EQ(plain->fingerprint(), load(with_specials(), R"({"chat_template": "x"})")->fingerprint());
}

TEST(LoadTokenizer, SpecialIdsComeFromTheSettingsThenFromTheUsualNames) {
  EXPECT_EQ(load(with_specials())->bos_id(), 257);
  EXPECT_EQ(load(with_specials())->eos_id(), 258);
  EXPECT_EQ(load(with_specials())->pad_id(), 260);
  const auto configured = load(
      with_specials(), R"({"bos_token": null, "eos_token": {"content": "<x>", "lstrip": false}, "pad_token": "<x>"})");
  EXPECT_EQ(configured->bos_id(), 257);
  EXPECT_EQ(configured->eos_id(), 259);
  EXPECT_EQ(configured->pad_id(), 259);
  EXPECT_EQ(load(description())->eos_id(), std::nullopt);

  const TempDir folder;
  write_file(folder / "tokenizer.json", with_specials().dump());
  write_file(folder / "special_tokens_map.json", R"({"eos_token": "<x>"})");
  EXPECT_EQ(load_tokenizer(folder.path())->eos_id(), 259);
  write_file(folder / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  EXPECT_EQ(load_tokenizer(folder.path())->eos_id(), 258);
}

TEST(LoadTokenizer, ErrorsNameTheFile) {
  const TempDir folder;
  const auto load_error = [&](const std::string& name) {
    return error_of([&] { (void)load_tokenizer(folder / name); });
  };
  EXPECT_THAT(load_error("missing"), AllOf(StartsWith("not found"), HasSubstr((folder / "missing").string())));
  std::filesystem::create_directory(folder / "empty");
  EXPECT_THAT(load_error("empty"), HasSubstr("neither tokenizer.json nor tokenizer.model"));
  write_file(folder / "empty/vocab.json", "{}");
  EXPECT_THAT(load_error("empty"), HasSubstr("it has vocab.json: Transformers' AutoTokenizer"));
  write_file(folder / "broken.json", "{");
  EXPECT_THAT(load_error("broken.json"),
              AllOf(StartsWith("corrupt"), HasSubstr((folder / "broken.json").string() + ":1")));
  write_file(folder / "tokenizer.json", with_specials().dump());
  write_file(folder / "tokenizer_config.json", R"({"bos_token": 3})");
  EXPECT_THAT(load_error("tokenizer.json"), HasSubstr("tokenizer_config.json: line 1"));
  std::filesystem::resize_file(folder / "broken.json", (std::uint64_t{64} << 20) + 1);
  EXPECT_THAT(load_error("broken.json"), HasSubstr("broken.json"));
}

TEST(LoadTokenizer, AFileThatHoldsAnotherKindNamesIt) {
  const TempDir folder;
  write_file(folder / "tokenizer.model", "IQ== 0\nIg== 1\n");
  EXPECT_THAT(error_of([&] { (void)load_tokenizer(folder.path()); }),
              AllOf(StartsWith("unsupported"), HasSubstr("tiktoken")));
  write_file(folder / "tokenizer.model", "not a model");
  EXPECT_THAT(error_of([&] { (void)load_tokenizer(folder.path()); }), StartsWith("corrupt"));
  for (const char* name : {"tokenizer.model", "tokenizer.json"}) {
    write_file(folder / name, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n");
    EXPECT_THAT(error_of([&] { (void)load_tokenizer(folder.path()); }),
                AllOf(StartsWith("corrupt"), HasSubstr(name), HasSubstr("git lfs pull")));
  }
}

TEST(StreamDecoder, HoldsBackIncompleteCharacters) {
  const auto tokenizer = load_tokenizer("bytes");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_EQ(stream.push(0x80), "\U0001F600");
  EXPECT_EQ(stream.push(0xFF), "\xFF");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push('b'),
            "\xE4"
            "b");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.push(257), "\xE4<|end_of_text|>");
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.finish(), "\xC3");
  EXPECT_EQ(stream.finish(), "");
  StreamDecoder without(*tokenizer, {.skip_special = true});
  EXPECT_EQ(without.push(0xC3), "");
  EXPECT_EQ(without.push(257), "");
  EXPECT_EQ(without.push(0xA9), "\u00E9");
}

TEST(StreamDecoder, TextIsValidUtf8AndThatOfTheWhole) {
  const auto tokenizer = load_tokenizer("bytes");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(stream.push_text(0xE4), "");
  EXPECT_EQ(stream.push_text(0xBD), "");
  EXPECT_EQ(stream.push_text('b'),
            "\uFFFD"
            "b");
  EXPECT_EQ(stream.push_text(0xFF), "\uFFFD");
  EXPECT_EQ(stream.push_text(0xC3), "");
  EXPECT_EQ(stream.push_text(0xA9), "\u00E9");
  EXPECT_EQ(stream.push_text(0xC3), "");
  EXPECT_EQ(stream.finish_text(), "\uFFFD");
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    Ids ids(random() % 30);
    for (auto& id : ids) id = static_cast<std::int32_t>(random() % 2 == 0 ? random() % 256 : 0x80 + random() % 128);
    std::string text;
    for (const auto id : ids) text += stream.push_text(id);
    EXPECT_EQ(text + stream.finish_text(), replace_invalid_subparts(tokenizer->decode(ids)));
  }
}

TEST(StreamDecoder, IsDecodeInPieces) {
  const auto tokenizer = load_tokenizer("bytes");
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    Ids ids(random() % 30);
    for (auto& id : ids) id = static_cast<std::int32_t>(random() % 300);
    StreamDecoder stream(*tokenizer);
    std::string text;
    for (const auto id : ids) text += stream.push(id);
    EXPECT_EQ(text + stream.finish(), tokenizer->decode(ids));
  }
}

}  // namespace
}  // namespace quench
