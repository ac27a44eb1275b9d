#include "train/evaluation/perplexity.h"

#include <gmock/gmock.h>

#include <limits>

#include "core/ops/loss/cross_entropy.h"
#include "data/formats/shard_writer.h"
#include "data/text/document_encoder.h"
#include "tests/testing.h"
#include "train/evaluation/evaluation_data.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;

using Ids = std::vector<std::int32_t>;

std::vector<ScoringWindow> collect(const std::function<void(const WindowSink&)>& make) {
  std::vector<ScoringWindow> windows;
  make([&](ScoringWindow window) { windows.push_back(std::move(window)); });
  return windows;
}

TEST(RollingWindows, TheLastOneIsFilledUpWithContext) {
  const Ids tokens{10, 11, 12, 13, 14};
  const auto windows = collect([&](const WindowSink& sink) { rolling_windows(tokens, 99, 4, sink); });
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_THAT(windows[0].inputs, ElementsAre(99, 10, 11, 12));
  EXPECT_THAT(windows[0].targets, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(windows[1].inputs, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(windows[1].targets, ElementsAre(kIgnoreLabel, kIgnoreLabel, kIgnoreLabel, 14));
  EXPECT_EQ(windows[1].first_target, 1);
}

TEST(RollingWindows, EveryTokenIsScoredOnce) {
  for (std::int32_t size = 1; size < 40; ++size)
    for (std::int64_t window = 1; window < 20; ++window) {
      Ids tokens;
      for (std::int32_t i = 0; i < size; ++i) tokens.push_back(100 + i);
      Ids scored;
      for (const ScoringWindow& w :
           collect([&](const WindowSink& sink) { rolling_windows(tokens, 99, window, sink); })) {
        EXPECT_EQ(static_cast<std::int64_t>(w.inputs.size()), std::min<std::int64_t>(size, window));
        for (std::size_t i = 0; i < w.targets.size(); ++i) {
          if (w.targets[i] == kIgnoreLabel) continue;
          scored.push_back(w.targets[i]);
          EXPECT_EQ(w.first_target + static_cast<std::int64_t>(i), w.targets[i] - 100);
        }
      }
      EXPECT_EQ(scored, tokens) << size << " tokens in windows of " << window;
    }
}

TEST(StridedWindows, ScoreWhatNoEarlierOneHasSeen) {
  const Ids tokens{10, 11, 12, 13, 14, 15};
  const auto windows = collect([&](const WindowSink& sink) { strided_windows(tokens, 4, 2, sink); });
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_THAT(windows[0].inputs, ElementsAre(10, 11, 12));
  EXPECT_THAT(windows[0].targets, ElementsAre(11, 12, 13));
  EXPECT_THAT(windows[1].inputs, ElementsAre(12, 13, 14));
  EXPECT_THAT(windows[1].targets, ElementsAre(kIgnoreLabel, 14, 15));
}

// White space is what Python's \s is, not only ASCII's.
TEST(CountWords, SplitsAsPythonDoes) {
  EXPECT_EQ(count_words(""), 1);
  EXPECT_EQ(count_words("a b"), 2);
  EXPECT_EQ(count_words("  a\tb \n c  "), 5);
  EXPECT_EQ(count_words("a\u00a0b\u3000c\u2028d\u0085e"), 5);
  EXPECT_EQ(count_words("a\x1c\x1f\x62"), 2);
  EXPECT_EQ(count_words("a\xff b"), 2);
}

nn::ModelConfig tiny_config() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 259, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.3,
        "max_position_embeddings": 32})"),
      "config.json");
}

class Perplexity : public ::testing::Test {
 protected:
  Perplexity() { model_.initialize(3); }

  PerplexityReport score(const EvaluationData& data, const Tokenizer* tokenizer, std::int64_t window = 8) {
    PerplexityMeter meter(model_, {.window = window, .prefix = prefix_token(tokenizer, model_.config())});
    read_evaluation_data(data, tokenizer, model_.config(), [&](const ScoredDocument& d) { meter.add(d); });
    return meter.finish();
  }

  TempDir folder_;
  nn::CausalLm model_{tiny_config(), nn::ParameterOptions{}};
  std::unique_ptr<Tokenizer> bytes_ = load_tokenizer("bytes");
};

// The documents of a shard are scored as the same texts are, with the words and bytes that its tokenizer tells.
TEST_F(Perplexity, ShardsAreScoredAsTheirTexts) {
  const std::vector<std::string> texts{"one fish two fish", "red fish", "a", "blue fish and some more words"};
  {
    ShardWriter writer(folder_ / "data.bin", {.vocab_size = 259, .tokenizer_fingerprint = fingerprint_text(*bytes_)});
    for (const std::string& text : texts) {
      writer.append(bytes_->encode(text, {.add_special_tokens = false}));
      writer.end_document();
    }
    writer.finish();
  }
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : "\n\n") + text;
  write_file(folder_ / "data.txt", joined);
  EvaluationData data{.files = {(folder_ / "data.txt").string()}, .special_tokens = false};
  data.reader.split = TextSplit::blank_line;
  const PerplexityReport expected = score(data, bytes_.get());
  data.files = {(folder_ / "data.bin").string()};
  const PerplexityReport report = score(data, bytes_.get());
  EXPECT_EQ(report.documents, 4);
  EXPECT_EQ(report.tokens, expected.tokens);
  EXPECT_EQ(report.words, expected.words);
  EXPECT_EQ(report.bytes, expected.bytes);
  EXPECT_NEAR(report.nll, expected.nll, 1e-9 * expected.nll);

  const PerplexityReport unknown = score(data, nullptr);
  EXPECT_EQ(unknown.words, 0) << "nothing tells the text";
  EXPECT_TRUE(std::isnan(unknown.byte_perplexity()));
  EXPECT_GT(unknown.token_perplexity(), 1);
}

TEST_F(Perplexity, MaskedTokensOfAShardAreContextOnly) {
  {
    ShardWriter writer(folder_ / "data.bin", {.vocab_size = 259, .target_mask = true});
    writer.append(Ids{1, 2, 3, 4, 5, 6}, std::vector<std::uint8_t>{0, 0, 0, 1, 1, 0});
    writer.end_document();
    writer.finish();
  }
  const PerplexityReport report = score({.files = {(folder_ / "data.bin").string()}}, bytes_.get());
  EXPECT_EQ(report.tokens, 2);
  EXPECT_EQ(report.words, 0);
}

TEST_F(Perplexity, AShardOfAnotherTokenizerIsRefused) {
  {
    ShardWriter writer(folder_ / "data.bin", {.vocab_size = 259, .tokenizer_fingerprint = "0123456789abcdef"});
    writer.append(Ids{1, 2, 3});
    writer.end_document();
    writer.finish();
  }
  EXPECT_THROW((void)score({.files = {(folder_ / "data.bin").string()}}, bytes_.get()), Error);
}

TEST_F(Perplexity, NothingToScoreIsAnError) {
  write_file(folder_ / "data.txt", "");
  EXPECT_THROW((void)score({.files = {(folder_ / "data.txt").string()}}, bytes_.get()), Error);
  PerplexityMeter meter(model_, {.window = 8});  // without a prefix, one token is context alone
  meter.add({.tokens = Ids{7}, .targets = {}, .text = std::nullopt});
  EXPECT_THROW((void)meter.finish(), Error);
}

TEST_F(Perplexity, ANonfiniteModelIsAnErrorThatNamesTheToken) {
  for (nn::Parameter* parameter : model_.parameters())
    if (parameter->name == "model.embed_tokens.weight")
      parameter->variable.value().data<float>()['q' * 16] = std::numeric_limits<float>::quiet_NaN();
  write_file(folder_ / "a.txt", "fine");
  write_file(folder_ / "b.txt", "no question");
  const EvaluationData data{.files = {(folder_ / "a.txt").string(), (folder_ / "b.txt").string()},
                            .special_tokens = false};
  try {
    (void)score(data, bytes_.get(), 32);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::nonfinite);
    EXPECT_THAT(error.what(), HasSubstr("document 1: the model's logits for token "));
  }
}

}  // namespace
}  // namespace quench
