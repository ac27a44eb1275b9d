// Encoding and decoding by byte-level BPE.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "data/tokenizer/model/bpe_model.h"
#include "tests/data/tokenizer/bpe_fixtures.h"

namespace quench {
namespace {

using testing::added_token;
using testing::byte_level;
using testing::cpu_seconds;
using testing::description;
using testing::Ids;
using testing::load;

constexpr EncodeOptions kUntrusted{.add_special_tokens = true, .parse_special = false};

std::string all_bytes() {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  return bytes;
}

TEST(BpeTokenizer, MergesTheLowestRankFirstThenTheLeftmost) {
  const auto tokenizer = load(description({{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "a"}}));
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{'a', 256}));
  EXPECT_EQ(tokenizer->encode("abab"), (Ids{257, 257}));
  EXPECT_EQ(tokenizer->encode("aaa"), Ids{259});
  EXPECT_EQ(tokenizer->encode("aaaa"), (Ids{258, 258}));
  EXPECT_EQ(tokenizer->encode("aaaaa"), (Ids{258, 259}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

// The definition, step by step, as the reference for the heap.
Ids merge_by_definition(std::string_view text, const std::vector<BpeMerge>& merges) {
  Ids ids;
  for (const char byte : text) ids.push_back(static_cast<std::uint8_t>(byte));
  while (true) {
    std::size_t best_rank = merges.size(), best_place = 0;
    for (std::size_t place = 0; place + 1 < ids.size(); ++place) {
      for (std::size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank].left == ids[place] && merges[rank].right == ids[place + 1]) {
          best_rank = rank;
          best_place = place;
        }
      }
    }
    if (best_rank == merges.size()) return ids;
    ids[best_place] = merges[best_rank].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_place) + 1);
  }
}

TEST(BpeModel, AgreesWithTheDefinitionOnRandomMergeTables) {
  std::mt19937 random(7);
  for (int table = 0; table < 40; ++table) {
    BpeDefinition definition;
    for (int byte = 0; byte < 256; ++byte) definition.tokens.push_back({std::string(1, static_cast<char>(byte)), true});
    std::vector<std::int32_t> pool{'a', 'b', 'c'};
    std::map<std::string, std::int32_t> ids;
    std::set<std::pair<std::int32_t, std::int32_t>> pairs;
    for (int i = 0; i < 30; ++i) {
      const std::int32_t left = pool[random() % pool.size()], right = pool[random() % pool.size()];
      const std::string bytes = definition.tokens[static_cast<std::size_t>(left)].bytes +
                                definition.tokens[static_cast<std::size_t>(right)].bytes;
      if (!pairs.emplace(left, right).second) continue;
      const auto [known, is_new] = ids.emplace(bytes, static_cast<std::int32_t>(definition.tokens.size()));
      if (is_new) {
        definition.tokens.push_back({bytes, true});
        pool.push_back(known->second);
      }
      definition.merges.push_back({left, right, known->second});
    }
    std::shuffle(definition.merges.begin(), definition.merges.end(), random);
    const std::vector<BpeMerge> merges = definition.merges;
    const BpeModel model(definition);
    const auto workspace = model.make_workspace();
    for (int word = 0; word < 60; ++word) {
      const std::string text = testing::random_bytes(random, random() % 40, "abc");
      Ids encoded;
      model.encode(text, *workspace, encoded);
      ASSERT_EQ(encoded, merge_by_definition(text, merges)) << text;
      Ids again;  // now perhaps from the cache
      model.encode(text, *workspace, again);
      ASSERT_EQ(again, encoded) << text;
    }
  }
}

TEST(BpeTokenizer, IgnoreMergesTakesAWholePieceThatIsAToken) {
  Json json = description({{"b", "c"}, {"a", "b"}});
  json.find("model")->find("vocab")->set("abc", 258);  // no merge makes it
  EXPECT_EQ(load(json)->encode("abc"), (Ids{'a', 256}));
  json.find("model")->set("ignore_merges", true);
  EXPECT_EQ(load(json)->encode("abc"), Ids{258});
  EXPECT_EQ(load(json)->encode("abca"), (Ids{'a', 256, 'a'}));
}

TEST(BpeTokenizer, EveryByteStringDecodesToItself) {
  const auto tokenizer =
      load(description({{"\xE4", "\xB8"}, {"\xE4\xB8", "\x80"}, {"a", "\xFF"}}, byte_level(false, true)));
  std::mt19937 random(3);
  std::vector<std::string> texts{all_bytes(), "\xE4\xB8",         "\xE4\xB8\x80",      "\xED\xA0\x80",
                                 "a\xFFz",    "\xF4\x90\x80\x80", std::string(1, '\0')};
  for (int i = 0; i < 300; ++i) texts.push_back(testing::random_bytes(random, random() % 50, all_bytes()));
  for (const std::string& text : texts) EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  // A run of ill-formed bytes is a piece of its own: it merges within itself, never with the text around it.
  EXPECT_EQ(tokenizer->encode("\xE4\xB8"), Ids{256});
  EXPECT_EQ(tokenizer->encode("\xE4\xB8\x80"), Ids{257});
  EXPECT_EQ(tokenizer->encode("a\xFF"), (Ids{'a', 0xFF}));
}

TEST(BpeTokenizer, SpecialTokensInTextAreParsedUnlessTheTextIsUntrusted) {
  Json json = description();
  json.set("added_tokens", Json::Array{added_token(256, "<s>", {"special"}), added_token(257, "<w>")});
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("a<s>b<w>"), (Ids{'a', 256, 'b', 257}));
  EXPECT_EQ(tokenizer->encode("a<s>b<w>", kUntrusted), (Ids{'a', '<', 's', '>', 'b', 257}));
  EXPECT_TRUE(tokenizer->is_special(256));
  EXPECT_FALSE(tokenizer->is_special(257));
  EXPECT_EQ(tokenizer->decode(Ids{'a', 256, 'b', 257}), "a<s>b<w>");
  EXPECT_EQ(tokenizer->decode(Ids{'a', 256, 'b', 257}, {.skip_special = true}), "ab<w>");
}

TEST(BpeTokenizer, AddedTokensMatchTheLongestAndTakeWhiteSpaceAlong) {
  Json json = description();
  json.set("added_tokens",
           Json::Array{added_token(256, "<a>", {"lstrip"}), added_token(257, "<b>", {"rstrip"}),
                       added_token(258, "<a><b>"), added_token(259, "word", {"single_word"}), added_token(260, "wor")});
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("x \n\u00A0<a> y"), (Ids{'x', 256, ' ', 'y'}));
  EXPECT_EQ(tokenizer->encode("x <b> \u3000y"), (Ids{'x', ' ', 257, 'y'}));
  EXPECT_EQ(tokenizer->encode("<a><b>"), Ids{258});
  // The white space between them goes to the first; a match that does not stand alone hides the shorter one within it.
  EXPECT_EQ(tokenizer->encode("<b>  <a>"), (Ids{257, 256}));
  EXPECT_EQ(tokenizer->encode("word, word"), (Ids{259, ',', ' ', 259}));
  EXPECT_EQ(tokenizer->encode("words"), (Ids{'w', 'o', 'r', 'd', 's'}));
  EXPECT_EQ(tokenizer->encode("\u00E9word"), (Ids{0xC3, 0xA9, 'w', 'o', 'r', 'd'}));
  EXPECT_EQ(tokenizer->encode("worm"), (Ids{260, 'm'}));
  EXPECT_EQ(tokenizer->encode("\xFFword\xFF"), (Ids{0xFF, 259, 0xFF}));
}

TEST(BpeTokenizer, NormalizedTokensAreFoundInNormalizedText) {
  Json json = description();
  json.set("normalizer", Json::Object{{"type", "NFC"}});
  json.set("added_tokens", Json::Array{added_token(256, "e\u0301!", {"normalized"}), added_token(257, "o\u0308")});
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("\u00E9!"), Ids{256});
  EXPECT_EQ(tokenizer->encode("e\u0301!"), Ids{256});
  EXPECT_EQ(tokenizer->encode("o\u0308"), Ids{257});
  EXPECT_EQ(tokenizer->encode("\u00F6"), (Ids{0xC3, 0xB6}));
  EXPECT_EQ(tokenizer->encode("e\u0301"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->encode("e\xFF\u0301"),
            (Ids{'e', 0xFF, 0xCC, 0x81}));  // not a sequence across an ill-formed byte
}

TEST(BpeTokenizer, PrefixSpaceComesBeforeEveryPieceThatHasNone) {
  Json json = description({{" ", "a"}, {" a", "b"}}, byte_level(true, true));
  json.set("added_tokens", Json::Array{added_token(258, "<s>")});
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->encode("ab"), Ids{257});
  EXPECT_EQ(tokenizer->encode(" ab"), Ids{257});
  EXPECT_EQ(tokenizer->encode("ab<s>ab"), (Ids{257, 258, 257}));
  EXPECT_EQ(tokenizer->encode(""), Ids{});
}

TEST(BpeTokenizer, DigitsAreSplitTogetherOrOneByOne) {
  const auto with = [](bool individual) {
    const Json digits = Json::Object{{"type", "Digits"}, {"individual_digits", individual}};
    return load(description(
        {{"1", "2"}, {"12", "3"}, {"a", "1"}, {"3", "b"}},
        Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{digits, byte_level(false, false)}}}));
  };
  EXPECT_EQ(with(false)->encode("a123b"), (Ids{'a', 257, 'b'}));
  EXPECT_EQ(with(true)->encode("a123b"), (Ids{'a', '1', '2', '3', 'b'}));
}

TEST(BpeTokenizer, BytesWithoutATokenBecomeUnknownOrAreDropped) {
  Json json = description();
  Json& vocabulary = *json.find("model")->find("vocab");
  vocabulary.erase("x");
  vocabulary.erase("y");
  vocabulary.set("<unk>", int{'x'});
  vocabulary.set("zz", int{'y'});
  EXPECT_EQ(load(json)->encode("axyb"), (Ids{'a', 'b'}));
  json.find("model")->set("unk_token", "<unk>");
  EXPECT_EQ(load(json)->encode("axyb"), (Ids{'a', 'x', 'x', 'b'}));
  json.find("model")->set("fuse_unk", true);
  EXPECT_EQ(load(json)->encode("axybx"), (Ids{'a', 'x', 'b', 'x'}));
}

TEST(BpeTokenizer, IdsWithoutATokenDecodeToNothingAndNegativeOnesAreRefused) {
  Json json = description();
  json.find("model")->find("vocab")->set("ab", 300);
  const auto tokenizer = load(json);
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_EQ(tokenizer->decode(Ids{'a', 299, 300, 1 << 30}), "aab");
  EXPECT_EQ(testing::error_of([&] { (void)tokenizer->decode(Ids{'a', -100}); }).find("invalid argument"), 0u);
  EXPECT_EQ(tokenizer->token_text(300), "ab");
  EXPECT_NE(testing::error_of([&] { (void)tokenizer->token_text(299); }).find("token id 299 does not exist"),
            std::string::npos);
  EXPECT_NE(testing::error_of([&] { (void)tokenizer->token_text(-1); }).find("token id -1 does not exist"),
            std::string::npos);
  EXPECT_EQ(tokenizer->find_token("ab"), 300);
  EXPECT_EQ(tokenizer->find_token("ba"), std::nullopt);
}

TEST(BpeTokenizer, BatchesAndThreadsGiveTheSameIds) {
  const auto tokenizer = load(description({{"a", "b"}, {"ab", "c"}, {"c", "a"}, {" ", "ab"}}, byte_level(false, true)));
  std::mt19937 random(11);
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(testing::random_bytes(random, random() % 100, "abc  \n\xC3\xA9"));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const auto batch = tokenizer->encode_batch(views);
  ASSERT_EQ(batch.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(batch[i], tokenizer->encode(texts[i]));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < texts.size(); ++i) wrong += tokenizer->encode(texts[i]) != batch[i];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A quadratic algorithm would take hours; sanitizers take some seconds.
#ifdef __SANITIZE_ADDRESS__
constexpr double kMostSeconds = 20.0;
#else
constexpr double kMostSeconds = 1.0;
#endif

TEST(BpeTokenizer, AMegabyteOfAnythingTakesLessThanASecond) {
  std::vector<std::pair<std::string, std::string>> merges;
  for (const char* unit : {"a", " ", "\n", "\xFF"}) {
    std::string run = unit;
    for (int i = 0; i < 6; ++i, run += run) merges.emplace_back(run, run);
  }
  for (const char* pair : {"ab", "ba", "cd", "\xF0\x9F", "\x98\x80", "<|"})
    merges.emplace_back(std::string(pair, 1), pair + 1);
  merges.emplace_back("\xF0\x9F", "\x98\x80");
  const Json split = Json::Object{{"type", "Split"},
                                  {"pattern", Json::Object{{"Regex", SplitPattern::named("llama3").expression()}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}};
  Json json = description(
      merges, Json::Object{{"type", "Sequence"}, {"pretokenizers", Json::Array{split, byte_level(false, false)}}});
  const auto vocabulary = static_cast<int>(json.at("model").at("vocab").as_object().size());
  json.set("added_tokens", Json::Array{added_token(vocabulary, "<|end_of_text|>", {"special"})});
  const auto tokenizer = load(json);

  std::mt19937 random(5);
  const auto repeated = [](std::string_view unit) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    return text;
  };
  const std::vector<std::pair<const char*, std::string>> texts{
      {"a", repeated("a")},
      {"spaces", repeated(" ")},
      {"newlines", repeated("\n")},
      {"emoji", repeated("\U0001F600")},
      {"family", repeated("\U0001F469\u200D\U0001F467")},
      {"all bytes", repeated(all_bytes())},
      {"ill-formed", repeated("\xFF")},
      {"space and newline", repeated(" \n")},
      {"almost special", repeated("<|end_of_text|")},
      {"random letters", testing::random_bytes(random, 1'000'000, "abcd")},
      {"random bytes", testing::random_bytes(random, 1'000'000, all_bytes())}};
  for (const auto& [name, text] : texts) {
    SCOPED_TRACE(name);
    Ids ids;
    EXPECT_LT(cpu_seconds([&] { ids = tokenizer->encode(text); }), kMostSeconds);
    EXPECT_TRUE(tokenizer->decode(ids) == text);
  }
  // Runs of marks are what makes normalization slow if anything does.
  json.set("normalizer", Json::Object{{"type", "NFC"}});
  const auto normalizing = load(json);
  for (const char* unit : {"\u0301", "\u0323\u0301", "e\u0301", "\u1100\u1161\u11A8"}) {
    SCOPED_TRACE(unit);
    const std::string text = repeated(unit);
    EXPECT_LT(cpu_seconds([&] { (void)normalizing->encode(text); }), 1.0);
  }
}

}  // namespace
}  // namespace quench
