// Training of byte-level BPE.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <map>

#include "data/tokenizer/bpe_trainer.h"
#include "data/tokenizer/text/split_pattern.h"
#include "tests/data/tokenizer/bpe_fixtures.h"
#include "tests/testing.h"

namespace quench {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::Ids;

BpeTrainingOptions options(std::int64_t merges, std::string pattern = "llama3", std::int64_t min_frequency = 1) {
  BpeTrainingOptions result;
  result.vocab_size = 256 + merges + 3;
  result.split_pattern = std::move(pattern);
  result.min_frequency = min_frequency;
  return result;
}

std::unique_ptr<Tokenizer> train(const std::vector<std::string_view>& documents, const BpeTrainingOptions& how) {
  return train_bpe(documents, how);
}

std::vector<std::string> learned(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (std::int32_t id = 256; id < tokenizer.vocab_size() && !tokenizer.is_special(id); ++id) {
    tokens.push_back(tokenizer.token_text(id));
  }
  return tokens;
}

TEST(TrainBpe, MergesTheMostFrequentPairAndAmongEqualsTheSmallestIds) {
  EXPECT_EQ(learned(*train({"ab ab ab cd cd"}, options(4))), (std::vector<std::string>{"ab", " c", " ab", " cd"}));
  EXPECT_EQ(learned(*train({"zy,ba,dc"}, options(3))), (std::vector<std::string>{",b", ",d", "zy"}));
  EXPECT_EQ(learned(*train({"aaaaaaaa"}, options(3))), (std::vector<std::string>{"aa", "aaaa", "aaaaaaaa"}));
}

TEST(TrainBpe, PairsDoNotCrossPieces) {
  EXPECT_EQ(learned(*train({"a1a1a1a1"}, options(10))), std::vector<std::string>{});
  EXPECT_EQ(learned(*train({"a1a1a1a1"}, options(1, ""))), std::vector<std::string>{"a1"});
  EXPECT_EQ(learned(*train({"a\xFF"
                            "a\xFF"},
                           options(10, ""))),
            std::vector<std::string>{});
  EXPECT_EQ(learned(*train({"\xFF\xFE \xFF\xFE"}, options(10, ""))), std::vector<std::string>{"\xFF\xFE"});
}

TEST(TrainBpe, StopsWhereNoPairIsFrequentEnough) {
  EXPECT_EQ(learned(*train({"abc abc"}, options(100, "llama3", 3))), std::vector<std::string>{});
  EXPECT_EQ(learned(*train({"abc abc"}, options(100, "llama3", 2))), (std::vector<std::string>{"ab", "abc"}));
  EXPECT_EQ(train({}, options(100))->vocab_size(), 259);
}

// The definition: count all pairs from scratch before every merge.
std::vector<std::string> train_by_definition(const std::vector<std::string_view>& documents,
                                             const SplitPattern& pattern, std::size_t merge_count,
                                             std::int64_t min_frequency) {
  std::map<std::string, std::int64_t> piece_counts;
  for (const auto document : documents) {
    pattern.split(document, [&](std::string_view piece) { ++piece_counts[std::string(piece)]; });
  }
  std::vector<std::pair<Ids, std::int64_t>> pieces;
  for (const auto& [piece, count] : piece_counts) {
    pieces.emplace_back(Ids(), count);
    for (const char byte : piece) pieces.back().first.push_back(static_cast<std::uint8_t>(byte));
  }
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  while (tokens.size() < 256 + merge_count) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;
    for (const auto& [ids, count] : pieces) {
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) counts[{ids[i], ids[i + 1]}] += count;
    }
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (best == counts.end() || best->second < min_frequency) break;
    const auto [left, right] = best->first;
    const std::string bytes = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    const auto known = std::find(tokens.begin(), tokens.end(), bytes);
    const auto id = static_cast<std::int32_t>(known - tokens.begin());
    if (known == tokens.end()) tokens.push_back(bytes);
    for (auto& [ids, count] : pieces) {
      Ids merged;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool here = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
        merged.push_back(here ? id : ids[i]);
        i += here;
      }
      ids = std::move(merged);
    }
  }
  return {tokens.begin() + 256, tokens.end()};
}

TEST(TrainBpe, AgreesWithTheDefinition) {
  std::mt19937 random(13);
  for (int round = 0; round < 12; ++round) {
    // Few letters: long runs, overlapping pairs, and tokens that two pairs make. Overlapping occurrences of a pair
    // ("aaa") are counted by place, so both must count them alike.
    std::vector<std::string> texts;
    for (int i = 0; i < 6; ++i) texts.push_back(testing::random_bytes(random, 120, round % 2 ? "ab " : "abcde  \n1"));
    const std::vector<std::string_view> documents(texts.begin(), texts.end());
    const auto tokenizer = train(documents, options(60, "qwen2", 2));
    EXPECT_EQ(learned(*tokenizer), train_by_definition(documents, SplitPattern::named("qwen2"), 60, 2)) << round;
    for (const auto text : documents) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {.add_special_tokens = false})), text);
    }
  }
}

TEST(TrainBpe, DependsNeitherOnDocumentOrderNorOnThreads) {
  std::mt19937 random(17);
  std::vector<std::string> texts;
  for (int i = 0; i < 50; ++i) texts.push_back(testing::random_bytes(random, 200, "abcdefgh  ,.\n"));
  std::vector<std::string_view> documents(texts.begin(), texts.end());
  const auto fingerprint = train(documents, options(200))->fingerprint();
  std::shuffle(documents.begin(), documents.end(), random);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(3);
  EXPECT_EQ(train(documents, options(200))->fingerprint(), fingerprint);
  omp_set_num_threads(1);
  EXPECT_EQ(train(documents, options(200))->fingerprint(), fingerprint);
  omp_set_num_threads(threads);
}

TEST(TrainBpe, TheResultIsATokenizerWithItsSpecialTokensLast) {
  BpeTrainingOptions how = options(2);
  how.special_tokens = {"<|eot_id|>"};
  how.vocab_size += 1;
  const auto tokenizer = train({"hello hello hello <|eot_id|>"}, how);
  EXPECT_EQ(tokenizer->vocab_size(), 262);
  EXPECT_EQ(tokenizer->bos_id(), 258);
  EXPECT_EQ(tokenizer->eos_id(), 259);
  EXPECT_EQ(tokenizer->pad_id(), 260);
  EXPECT_EQ(tokenizer->find_token("<|eot_id|>"), 261);
  EXPECT_EQ(tokenizer->encode("<|eot_id|>"), (Ids{258, 261}));
  const testing::TempDir folder;
  tokenizer->save(folder.path());
  EXPECT_EQ(load_tokenizer(folder.path())->fingerprint(), tokenizer->fingerprint());

  how = options(2);
  how.bos_token = how.pad_token = "";
  how.vocab_size -= 2;
  const auto bare = train({"hello hello"}, how);
  EXPECT_EQ(bare->bos_id(), std::nullopt);
  EXPECT_EQ(bare->eos_id(), 258);
  EXPECT_EQ(bare->encode("h"), Ids{'h'});
}

TEST(TrainBpe, RefusesOptionsThatCannotBe) {
  const auto refused = [](auto&& change) {
    BpeTrainingOptions how = options(10);
    change(how);
    return error_of([&] { (void)train({"text"}, how); });
  };
  EXPECT_THAT(refused([](auto& how) { how.vocab_size = 258; }),
              HasSubstr("vocabulary of 258 is not possible: expected 259"));
  EXPECT_THAT(refused([](auto& how) { how.vocab_size = std::int64_t{1} << 40; }), HasSubstr("not possible"));
  EXPECT_THAT(refused([](auto& how) { how.min_frequency = 0; }), HasSubstr("min_frequency is 0"));
  EXPECT_THAT(refused([](auto& how) { how.split_pattern = "(a+)+"; }), HasSubstr("no split pattern is called"));
  EXPECT_THAT(refused([](auto& how) { how.special_tokens = {"<|pad|>"}; }), HasSubstr("listed twice"));
  EXPECT_THAT(refused([](auto& how) { how.special_tokens = {""}; }), HasSubstr("empty"));
}

TEST(TrainBpe, ALongPieceTakesNoLongerThanManyShortOnes) {
  std::mt19937 random(19);
  const std::string text = testing::random_bytes(random, 500'000, "abcdefghijklmnop");
  EXPECT_LT(testing::cpu_seconds([&] { (void)train({text}, options(500, "")); }), 3.0);
}

}  // namespace
}  // namespace quench
