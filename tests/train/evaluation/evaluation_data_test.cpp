#include "train/evaluation/evaluation_data.h"

#include "tests/data/sampling/token_fixtures.h"
#include "tests/data/tokenizer/bpe_fixtures.h"
#include "train/evaluation/calibration_data.h"
#include "train/evaluation/choice_task.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TempDir;
using testing::write_file;

nn::ModelConfig small_model() {
  nn::ModelConfig model;
  model.vocab_size = 100;
  model.max_position_embeddings = 64;
  return model;
}

// Records of token ids have nothing to encode.
TEST(EvaluationData, RecordsOfTokenIdsNeedNoTokenizer) {
  const TempDir folder;
  write_file(folder / "ids.jsonl", "{\"input_ids\": [5, 6, 7], \"labels\": [-100, 6, 7]}\n{\"input_ids\": [8, 9]}\n");
  write_file(folder / "ids.json", "[{\"input_ids\": [1, 2]}]");
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::uint8_t> targets;
  const EvaluationData data{.files = {(folder / "ids.jsonl").string(), (folder / "ids.json").string()}};
  read_evaluation_data(data, nullptr, small_model(), [&](const ScoredDocument& document) {
    tokens.emplace_back(document.tokens.begin(), document.tokens.end());
    targets.insert(targets.end(), document.targets.begin(), document.targets.end());
  });
  EXPECT_EQ(tokens, (std::vector<std::vector<std::int32_t>>{{5, 6, 7}, {8, 9}, {1, 2}}));
  EXPECT_THAT(targets, ElementsAre(0, 1, 1, 1, 1, 1, 1));
  const auto calibration = read_calibration_data(
      {.calibration = data.files, .calibration_samples = 2, .calibration_seq_len = 3}, nullptr, small_model());
  ASSERT_NE(calibration, nullptr);
  EXPECT_EQ(calibration->sequences, (std::vector<std::vector<std::int32_t>>{{5, 6, 7}, {8, 9, 1}}));
}

TEST(CalibrationDataFiles, FewerSequencesThanAskedForAreUsed) {
  const TempDir folder;
  write_file(folder / "ids.jsonl", "{\"input_ids\": [5, 6, 7]}\n{\"input_ids\": [8, 9]}\n");
  const auto read = [&](std::int64_t length) {
    return read_calibration_data({.calibration = {(folder / "ids.jsonl").string()}, .calibration_seq_len = length},
                                 nullptr, small_model());
  };
  EXPECT_EQ(read(2)->sequences, (std::vector<std::vector<std::int32_t>>{{5, 6}, {7, 8}}));
  EXPECT_EQ(read(2)->source, "2 sequences of 2 tokens from ids.jsonl");
  EXPECT_EQ(read(50)->sequences, (std::vector<std::vector<std::int32_t>>{{5, 6, 7, 8, 9}})) << "less than one";
  EXPECT_EQ(read(50)->source, "1 sequence of 5 tokens from ids.jsonl");
  write_file(folder / "ids.jsonl", "");
  EXPECT_THAT(error_of([&] { (void)read(2); }), HasSubstr("ids.jsonl: no record that can be used"));
}

TEST(EvaluationData, TextWithoutATokenizerIsRefused) {
  const TempDir folder;
  write_file(folder / "a.txt", "words");
  write_file(folder / "a.jsonl", "{\"text\": \"words\"}\n");
  write_file(folder / "chat.jsonl",
             R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  for (const char* name : {"a.txt", "a.jsonl", "chat.jsonl"}) {
    const EvaluationData data{.files = {(folder / name).string()}};
    EXPECT_THAT(error_of([&] { read_evaluation_data(data, nullptr, small_model(), [](const ScoredDocument&) {}); }),
                HasSubstr(std::string(name) + " is text, but"));
  }
}

TEST(ChoiceTaskFiles, AreReadInEveryFormatOfRecords) {
  const TempDir folder;
  write_file(folder / "a.json", R"([{"goal": "g", "sol1": "a", "sol2": "b", "label": 1}])");
  write_file(folder / "a.csv", "goal,sol1,sol2,label\ng,a,b,1\n");
  for (const char* name : {"a.json", "a.csv"}) {
    const std::vector<ChoiceItem> items = read_choice_items(*choice_tasks().find("piqa"), folder / name, std::nullopt);
    ASSERT_EQ(items.size(), 1u);
    EXPECT_EQ(items[0].answer, 1u);
  }
}

}  // namespace
}  // namespace quench
