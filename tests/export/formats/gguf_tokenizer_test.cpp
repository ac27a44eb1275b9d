// Tokenizers as GGUF metadata: which of llama.cpp's is named, and what it is told of the tokens.

#include <sentencepiece_trainer.h>

#include <array>

#include "core/json/json.h"
#include "core/system/file.h"
#include "export/formats/gguf/sentence_piece.h"
#include "export/formats/gguf/tokenizer.h"
#include "tests/export/export_testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using testing::TempDir;
using testing::write_file;
using TokenizerMetadata = std::map<std::string, GgufValue>;

TokenizerMetadata metadata_of_tokenizer(const TempDir& folder, std::int64_t vocab_size) {
  nn::ModelConfig config;
  config.vocab_size = vocab_size;
  const auto pairs = gguf_tokenizer(folder.path(), config);
  return {pairs.begin(), pairs.end()};
}

template <class T>
T value_of(const TokenizerMetadata& metadata, const std::string& key) {
  const auto found = metadata.find("tokenizer.ggml." + key);
  return found == metadata.end() ? T{} : std::get<T>(found->second);
}

// A byte-level tokenizer.json with a pre_tokenizer.
std::string byte_level_json(const std::string& pre_tokenizer) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
             "added_tokens": [{"id": 3, "content": "<e>", "special": true, "normalized": false}],
             "decoder": {"type": "ByteLevel"}, "pre_tokenizer": )" +
         pre_tokenizer + "}";
}

TEST(GgufTokenizer, TheWholeSplitMustHaveACounterpart) {
  const std::string level = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})";
  const auto sequence = [](const std::string& first, const std::string& then) {
    return R"({"type": "Sequence", "pretokenizers": [)" + first + ", " + then + "]}";
  };
  for (const auto& [pre_tokenizer, name] : std::map<std::string, std::string>{
           {level, "gpt-2"},
           {sequence(R"({"type": "Digits", "individual_digits": true})", level), "smollm"},
           {sequence(R"({"type": "Digits", "individual_digits": false})", level), ""},
       }) {
    const TempDir folder;
    write_file(folder / "tokenizer.json", byte_level_json(pre_tokenizer));
    const TokenizerMetadata metadata = metadata_of_tokenizer(folder, 5);
    EXPECT_EQ(value_of<std::string>(metadata, "pre"), name);
    EXPECT_EQ(value_of<std::string>(metadata, "model"), name.empty() ? "none" : "gpt2");
    if (name.empty()) continue;
    EXPECT_EQ(value_of<std::vector<std::string>>(metadata, "tokens"),
              (std::vector<std::string>{"a", "b", "ab", "<e>", "[PAD4]"}));
    EXPECT_EQ(value_of<std::vector<std::int32_t>>(metadata, "token_type"), (std::vector<std::int32_t>{1, 1, 1, 3, 5}));
    EXPECT_EQ(value_of<std::vector<std::string>>(metadata, "merges"), (std::vector<std::string>{"a b"}));
  }
}

// llama.cpp has attributes for them, but no keys: it sets them for models named phi3 (or phi-3) alone.
TEST(GgufTokenizer, TokensNextToWhichSpacesAreDroppedAreNamed) {
  const TempDir folder;
  const auto warnings_of = [&](const std::string& model_type, const std::string& first) {
    std::string added;
    for (const auto& [id, text, strip] : {std::tuple{3, "<dept>", "lstrip"}, {4, "<end>", "rstrip"}, {5, "<x>", "x"}})
      added += fmt::format(R"({{"id": {}, "content": "{}", "special": false, "normalized": false, "{}": true}}, )", id,
                           text, strip);
    const std::array<std::string, 4> named = {first, "<unk>", "<s>", "<|endoftext|>"};
    for (std::size_t i = 0; i < named.size(); ++i)
      added += fmt::format(R"({}{{"id": {}, "content": "{}", "special": true, "normalized": false}})",
                           i == 0 ? "" : ", ", 6 + i, named[i]);
    write_file(
        folder / "tokenizer.json",
        R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}, "added_tokens": [)" +
            added + R"(], "decoder": {"type": "ByteLevel"}, "pre_tokenizer":
                   {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}})");
    nn::ModelConfig config;
    config.model_type = model_type;
    config.vocab_size = 10;
    const testing::CapturedLog log;
    (void)gguf_tokenizer(folder.path(), config);
    return log.text();
  };
  const auto names = [](const std::string& list) {
    return ::testing::HasSubstr("the tokenizer drops spaces next to " + list + " (lstrip, rstrip), llama.cpp does not");
  };
  EXPECT_THAT(warnings_of("llama", "</s>"), names(R"("<dept>", "<end>")"));
  EXPECT_THAT(warnings_of("phi3", "</s>"), names(R"("<dept>")"));
  EXPECT_THAT(warnings_of("phi3", "<other>"), names(R"("<dept>", "<end>")"));
}

// Several templates are a list with names.
TEST(GgufTokenizer, TheDefaultChatTemplateIsEmbedded) {
  const TempDir folder;
  write_file(folder / "tokenizer.json",
             byte_level_json(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true})"));
  for (const char* chat :
       {R"("{{ x }}")", R"([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "{{ x }}"}])"}) {
    write_file(folder / "tokenizer_config.json", fmt::format(R"({{"chat_template": {}}})", chat));
    EXPECT_EQ(metadata_of_tokenizer(folder, 5).at("tokenizer.chat_template"), GgufValue(std::string("{{ x }}")));
  }
}

// A tokenizer of five special tokens; `settings` of tokenizer_config.json, and the ids that end a text by the model.
TokenizerMetadata special_tokens(const TempDir& folder, const std::string& settings,
                                 const std::vector<std::int64_t>& ends, const std::string& generation = "{}") {
  std::string added;
  const char* texts[] = {"<|im_start|>", "<|im_end|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>", "<stop>"};
  for (std::size_t i = 0; i < std::size(texts); ++i)
    added += fmt::format(R"({}{{"id": {}, "content": "{}", "special": true, "normalized": false}})", i == 0 ? "" : ", ",
                         3 + i, texts[i]);
  write_file(folder / "tokenizer.json",
             R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}, "added_tokens": [)" +
                 added + R"(], "decoder": {"type": "ByteLevel"}, "pre_tokenizer":
                 {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}})");
  write_file(folder / "tokenizer_config.json", settings);
  write_file(folder / "generation_config.json", generation);
  nn::ModelConfig config;
  config.vocab_size = 9;
  config.bos_token_id = 3;
  config.eos_token_ids = ends;
  const auto pairs = gguf_tokenizer(folder.path(), config);
  return {pairs.begin(), pairs.end()};
}

std::optional<std::uint32_t> id_of(const TokenizerMetadata& metadata, const std::string& key) {
  const auto found = metadata.find("tokenizer.ggml." + key + "_token_id");
  return found == metadata.end() ? std::nullopt : std::optional(std::get<std::uint32_t>(found->second));
}

// llama.cpp's converter takes eos from tokenizer_config.json, whatever comes first in the model's list.
TEST(GgufTokenizer, EosIsTheTokenizersAndOtherEndsHaveTheirKeys) {
  const TempDir folder;
  TokenizerMetadata ids = special_tokens(folder, R"({"eos_token": "<|im_end|>"})", {5, 4});
  EXPECT_EQ(id_of(ids, "eos"), 4u);
  EXPECT_EQ(id_of(ids, "eot"), 5u);
  EXPECT_EQ(id_of(ids, "eom"), std::nullopt);
  EXPECT_EQ(id_of(ids, "bos"), 3u);

  ids = special_tokens(folder, R"({"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|end_of_text|>"})", {4});
  EXPECT_EQ(id_of(ids, "eos"), 4u);
  EXPECT_EQ(id_of(ids, "eot"), std::nullopt);
  EXPECT_EQ(id_of(ids, "bos"), 5u);

  // Llama 3.1's three, and those that only generation_config.json names.
  ids = special_tokens(folder, R"({"eos_token": "<|end_of_text|>"})", {5, 6, 7});
  EXPECT_EQ(id_of(ids, "eos"), 5u);
  EXPECT_EQ(id_of(ids, "eot"), 7u);
  EXPECT_EQ(id_of(ids, "eom"), 6u);
  ids = special_tokens(folder, R"({"eos_token": "<|end_of_text|>"})", {5}, R"({"eos_token_id": [5, 7]})");
  EXPECT_EQ(id_of(ids, "eos"), 5u);
  EXPECT_EQ(id_of(ids, "eot"), 7u);

  // The model's, where the tokenizer's files name none.
  ids = special_tokens(folder, "{}", {4, 5});
  EXPECT_EQ(id_of(ids, "eos"), 4u);
  EXPECT_EQ(id_of(ids, "eot"), 5u);
}

TEST(GgufTokenizer, AnEndWithoutAKeyIsNamed) {
  const TempDir folder;
  const testing::CapturedLog log;
  (void)special_tokens(folder, R"({"eos_token": "<|end_of_text|>"})", {5, 7, 8});
  EXPECT_THAT(log.text(), ::testing::HasSubstr("8 \"<stop>\" ends a text too"));
}

// BPE over characters as Llama 2's tokenizer.json has it: tokens for all bytes, then `vocab` from 258 on.
std::string characters_json(const std::vector<std::string>& vocab, const std::string& merges,
                            const std::string& more_added = "") {
  std::string entries = R"("<unk>": 0, "<s>": 1)";
  for (int byte = 0; byte < 256; ++byte) entries += fmt::format(R"(, "<0x{:02X}>": {})", byte, byte + 2);
  for (std::size_t i = 0; i < vocab.size(); ++i) entries += fmt::format(R"(, "{}": {})", vocab[i], 258 + i);
  return R"({"model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": {)" +
         entries + R"(}, "merges": [)" + merges + R"(]},
      "added_tokens": [{"id": 0, "content": "<unk>", "special": true, "normalized": false},
                       {"id": 1, "content": "<s>", "special": true, "normalized": false})" +
         more_added + R"(],
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
      "pre_tokenizer": null,
      "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
          {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})";
}

TEST(GgufTokenizer, MergesOfCharactersBecomeScores) {
  const TempDir folder;
  // "aba" comes from two pairs.
  const std::vector<std::string> vocab = {"\u2581", "a", "b", "ab", "ba", "aba", "\u2581a"};
  write_file(folder / "tokenizer.json", characters_json(vocab, R"("a b", "b a", "\u2581 a", "ab a", "a ba")"));
  const TokenizerMetadata metadata = metadata_of_tokenizer(folder, 265);
  EXPECT_EQ(value_of<std::string>(metadata, "model"), "llama");
  EXPECT_TRUE(value_of<bool>(metadata, "add_space_prefix"));
  const auto scores = value_of<std::vector<float>>(metadata, "scores");
  const auto kinds = value_of<std::vector<std::int32_t>>(metadata, "token_type");
  ASSERT_EQ(scores.size(), 265u);
  EXPECT_EQ((std::vector<float>{scores[261], scores[262], scores[264], scores[263]}),
            (std::vector<float>{0, -1, -2, -3}));
  EXPECT_LT(scores[259], -3) << "no merge makes it";
  EXPECT_EQ((std::vector<std::int32_t>{kinds[0], kinds[1], kinds[2], kinds[258]}),
            (std::vector<std::int32_t>{2, 3, 6, 1}));

  // SentencePiece would also join "a" and "ba"; and it knows no order between the pairs of one token.
  for (const char* merges : {R"("a b", "b a", "\u2581 a", "ab a")", R"("a b", "ab a", "b a", "a ba", "\u2581 a")",
                             R"("a b", "b a", "ab a", "a ba")"}) {
    write_file(folder / "tokenizer.json", characters_json(vocab, merges));
    EXPECT_EQ(value_of<std::string>(metadata_of_tokenizer(folder, 265), "model"), "none") << merges;
  }
}

std::string log_of_tokenizer(const TempDir& folder, std::int64_t vocab_size) {
  const testing::CapturedLog log;
  EXPECT_EQ(value_of<std::string>(metadata_of_tokenizer(folder, vocab_size), "model"), "none");
  return log.text();
}

// Sorted by the pieces' scores, as Transformers' converter does: pieces that users define all have score 0.
TEST(GgufTokenizer, MergesThatMakeAddedTokensAreSkipped) {
  const TempDir folder;
  std::vector<std::string> vocab = {"a", "\u2581", "\\n", "\\n\\n", "\\n\\n\\n"};
  for (const char* spaces : {"\u2581\u2581", "\u2581\u2581\u2581", "\u2581\u2581\u2581\u2581"})
    vocab.emplace_back(spaces);
  vocab.emplace_back("\u2581a");
  vocab.emplace_back("\u2581\u2581a");
  std::string added;
  for (std::size_t i = 2; i < 8; ++i)
    added +=
        fmt::format(R"(, {{"id": {}, "content": "{}", "special": false, "normalized": false}})", 258 + i, vocab[i]);
  const std::string merges = R"(["\u2581\u2581\u2581", "\u2581"], ["\n\n", "\n"], ["\u2581\u2581", "\u2581\u2581"],
      ["\u2581\u2581", "\u2581"], ["\n", "\n\n"], ["\u2581", "\u2581\u2581\u2581"], ["\u2581", "\u2581\u2581"],
      ["\n", "\n"], ["\u2581", "\u2581"])";
  const std::string words = R"(, ["\u2581", "a"], ["\u2581\u2581", "a"], ["\u2581", "\u2581a"])";
  write_file(folder / "tokenizer.json", characters_json(vocab, merges + words, added));
  const TokenizerMetadata metadata = metadata_of_tokenizer(folder, 270);
  EXPECT_EQ(value_of<std::string>(metadata, "model"), "llama");
  const auto scores = value_of<std::vector<float>>(metadata, "scores");
  ASSERT_EQ(scores.size(), 270u);
  // Runs of spaces become tokens from left to right: they have one score. They are not matched in a text, but merged.
  EXPECT_EQ(std::vector<float>(scores.begin() + 263, scores.begin() + 268), (std::vector<float>{0, 0, 0, -1, -2}));
  const auto kinds = value_of<std::vector<std::int32_t>>(metadata, "token_type");
  EXPECT_EQ(std::vector<std::int32_t>(kinds.begin() + 259, kinds.begin() + 268),
            (std::vector<std::int32_t>{1, 4, 4, 4, 1, 1, 1, 1, 1}));

  // Apart from one another, or in another order, they need scores that llama.cpp does not have.
  const std::string apart = R"(["\u2581\u2581", "\u2581\u2581"], ["\u2581\u2581", "\u2581"], ["\u2581", "a"],
      ["\u2581", "\u2581\u2581\u2581"], ["\u2581\u2581\u2581", "\u2581"], ["\u2581", "\u2581\u2581"], ["\u2581", "\u2581"],
      ["\u2581\u2581", "a"], ["\u2581", "\u2581a"])";
  write_file(folder / "tokenizer.json", characters_json(vocab, apart, added));
  EXPECT_THAT(log_of_tokenizer(folder, 270), ::testing::HasSubstr("tokenizer.json has other merges between those of"));
}

TEST(GgufTokenizer, TheReasonForNoTokenizerIsNamed) {
  using ::testing::HasSubstr;
  const TempDir folder;
  EXPECT_THAT(log_of_tokenizer(folder, 265), HasSubstr("the model folder has none"));
  const std::vector<std::string> vocab = {"\u2581", "a", "b", "ab", "ba", "aba", "\u2581a"};
  const auto reason_of = [&](const std::string& json) {
    write_file(folder / "tokenizer.json", json);
    return log_of_tokenizer(folder, 265);
  };
  EXPECT_THAT(reason_of(characters_json(vocab, R"("a b", "b a", "\u2581 a", "ab a")")),
              HasSubstr("no tokenizer: tokenizer.json lacks merges of \"aba\"; llama.cpp merges all pairs"));
  EXPECT_THAT(reason_of(characters_json(vocab, R"("a b", "ab a", "b a", "a ba", "\u2581 a")")),
              HasSubstr("other merges between those of \"aba\"; llama.cpp orders merges by the result"));
  EXPECT_THAT(reason_of(byte_level_json(R"({"type": "Digits", "individual_digits": false})")),
              HasSubstr("the pre_tokenizer of tokenizer.json is none of those known of llama.cpp (llama-bpe, qwen2"));
}

// A SentencePiece model trained on a few words.
void train_sentence_piece(const TempDir& folder, const std::string& options) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "the quick brown fox jumps over the lazy dog\nHello world, hello there\n";
  write_file(folder / "text", text);
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      "--vocab_size=320 --byte_fallback=true --hard_vocab_limit=false --minloglevel=2 --num_threads=1 --input=" +
      (folder / "text").string() + " --model_prefix=" + (folder / "tokenizer").string() + " " + options);
  ASSERT_TRUE(status.ok()) << status.ToString();
}

TEST(GgufTokenizer, TokensAddedToASentencePieceModelAreKept) {
  const TempDir folder;
  train_sentence_piece(folder, "--model_type=bpe --normalization_rule_name=identity --remove_extra_whitespaces=false");
  const SentencePieceSettings settings = read_sentence_piece_settings(testing::read_file(folder / "tokenizer.model"));
  EXPECT_TRUE(settings.bpe && settings.dummy_prefix && !settings.space_suffix);
  EXPECT_FALSE(settings.normalizes || settings.collapses_spaces);
  const auto plain = value_of<std::vector<std::int32_t>>(metadata_of_tokenizer(folder, 400), "token_type");
  const auto pieces = static_cast<std::size_t>(std::ranges::find(plain, 5) - plain.begin());  // the first unused one
  write_file(folder / "tokenizer_config.json",
             fmt::format(R"({{"added_tokens_decoder": {{"{}": {{"content": "<|im_start|>", "special": true}},
                              "{}": {{"content": "<tool>", "special": false}}}}}})",
                         pieces, pieces + 1));
  const TokenizerMetadata metadata = metadata_of_tokenizer(folder, 400);
  const auto tokens = value_of<std::vector<std::string>>(metadata, "tokens");
  const auto kinds = value_of<std::vector<std::int32_t>>(metadata, "token_type");
  ASSERT_EQ(tokens.size(), 400u);
  EXPECT_EQ(tokens[pieces], "<|im_start|>");
  EXPECT_EQ(kinds[pieces], 3);
  EXPECT_EQ(tokens[pieces + 1], "<tool>");
  EXPECT_EQ(kinds[pieces + 1], 4);
  EXPECT_EQ(kinds[pieces + 2], 5);
}

// The ids of `texts` in the metadata.
std::vector<std::size_t> ids_of(const TokenizerMetadata& metadata, const std::vector<std::string>& texts) {
  const auto tokens = value_of<std::vector<std::string>>(metadata, "tokens");
  std::vector<std::size_t> ids;
  for (const std::string& text : texts)
    ids.push_back(static_cast<std::size_t>(std::ranges::find(tokens, text) - tokens.begin()));
  return ids;
}

std::vector<std::int32_t> kinds_of(const TokenizerMetadata& metadata, const std::vector<std::size_t>& ids) {
  const auto kinds = value_of<std::vector<std::int32_t>>(metadata, "token_type");
  std::vector<std::int32_t> found;
  for (const std::size_t id : ids) found.push_back(id < kinds.size() ? kinds[id] : 0);
  return found;
}

// As Gemma has them: pieces of the model, of which the tokenizer's files may say more.
constexpr const char* kGemmaPieces =
    "--model_type=bpe --normalization_rule_name=identity --remove_extra_whitespaces=false --add_dummy_prefix=false "
    "--user_defined_symbols=<start_of_turn>,<table>,<unused0>,\u2581\u2581,\u2581\u2581\u2581";

TEST(GgufTokenizer, PiecesThatUsersDefineAreMatchedWhole) {
  const TempDir folder;
  train_sentence_piece(folder, kGemmaPieces);
  EXPECT_EQ(read_sentence_piece_settings(testing::read_file(folder / "tokenizer.model")).user_defined.size(), 5u);
  // Spaces as such: llama.cpp matches these tokens in the text as it is.
  const std::vector<std::string> texts = {"<unk>", "<s>", "<start_of_turn>", "<table>", "<unused0>", "  ", "   ", "e"};
  TokenizerMetadata metadata = metadata_of_tokenizer(folder, 400);
  const std::vector<std::size_t> ids = ids_of(metadata, texts);
  EXPECT_EQ(kinds_of(metadata, ids), (std::vector<std::int32_t>{2, 3, 4, 4, 3, 4, 4, 1}));
  EXPECT_EQ(value_of<std::vector<float>>(metadata, "scores").at(ids[2]), -1000.0f) << "no merge makes it";

  write_file(folder / "tokenizer_config.json", R"({"additional_special_tokens": ["<start_of_turn>"]})");
  EXPECT_EQ(kinds_of(metadata_of_tokenizer(folder, 400), ids), (std::vector<std::int32_t>{2, 3, 3, 4, 3, 4, 4, 1}));

  write_file(folder / "tokenizer_config.json",
             fmt::format(R"({{"added_tokens_decoder": {{"{}": {{"content": "<start_of_turn>", "special": true}},
                              "{}": {{"content": "e", "special": false}}}}}})",
                         ids[2], ids[7]));
  metadata = metadata_of_tokenizer(folder, 400);
  EXPECT_EQ(ids_of(metadata, texts), ids);
  EXPECT_EQ(kinds_of(metadata, ids), (std::vector<std::int32_t>{2, 3, 3, 4, 3, 4, 4, 4}))
      << "added tokens below the count of pieces";
}

// Transformers 5 writes added tokens to tokenizer.json alone.
TEST(GgufTokenizer, AddedTokensOfTokenizerJsonApplyToPieces) {
  const TempDir folder;
  train_sentence_piece(folder, kGemmaPieces);
  const TokenizerMetadata plain = metadata_of_tokenizer(folder, 400);
  const std::vector<std::size_t> ids = ids_of(plain, {"<start_of_turn>", "<table>", "  ", "<s>"});
  std::string vocab, added;
  const auto pieces = value_of<std::vector<std::string>>(plain, "tokens");
  const auto kinds = value_of<std::vector<std::int32_t>>(plain, "token_type");
  for (std::size_t id = 0; id < pieces.size() && kinds[id] != 5; ++id)
    vocab += fmt::format("{}{}: {}", id == 0 ? "" : ", ", Json(id == ids[2] ? "\u2581\u2581" : pieces[id]).dump(), id);
  for (const std::size_t id : ids)
    added +=
        fmt::format(R"({}{{"id": {}, "content": {}, "special": {}, "normalized": false}})", added.empty() ? "" : ", ",
                    id, Json(id == ids[2] ? "\u2581\u2581" : pieces[id]).dump(), id == ids[0] || id == ids[3]);
  write_file(folder / "tokenizer.json",
             R"({"model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": {)" +
                 vocab + R"(}, "merges": []}, "added_tokens": [)" + added + R"(], "pre_tokenizer": null,
                 "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
                 "decoder": {"type": "Sequence", "decoders": [
                     {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                     {"type": "ByteFallback"}, {"type": "Fuse"}]}})");
  const TokenizerMetadata metadata = metadata_of_tokenizer(folder, 400);
  EXPECT_EQ(value_of<std::string>(metadata, "model"), "llama");
  EXPECT_EQ(ids_of(metadata, {"<start_of_turn>", "<table>", "  ", "<s>"}), ids);
  EXPECT_EQ(kinds_of(metadata, ids), (std::vector<std::int32_t>{3, 4, 4, 3}));
}

TEST(GgufTokenizer, ModelsWhoseSpacesEndWordsHaveNoCounterpart) {
  const TempDir folder;
  train_sentence_piece(folder,
                       "--model_type=bpe --normalization_rule_name=identity --remove_extra_whitespaces=false "
                       "--treat_whitespace_as_suffix=true");
  EXPECT_THAT(log_of_tokenizer(folder, 400), ::testing::HasSubstr("treat_whitespace_as_suffix"));
}

// llama.cpp's "llama" merges pairs; a unigram model chooses the likeliest pieces.
TEST(GgufTokenizer, UnigramModelsHaveNoCounterpart) {
  const TempDir folder;
  train_sentence_piece(folder, "--model_type=unigram");
  EXPECT_TRUE(read_sentence_piece_settings(testing::read_file(folder / "tokenizer.model")).normalizes);
  EXPECT_THAT(log_of_tokenizer(folder, 400), ::testing::HasSubstr("tokenizer.model is no BPE model"));
}

}  // namespace
}  // namespace quench
