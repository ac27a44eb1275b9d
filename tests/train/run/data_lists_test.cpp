// Lists in data.train: one data set without weights, a mix with them; fewer sequences than a global batch.

#include <gmock/gmock.h>

#include <map>

#include "tests/train/metrics/captured_log.h"
#include "tests/train/run/same_tensors.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/run/first_record.h"
#include "train/session/data_setup.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Options = std::vector<std::string>;

class DataLists : public ::testing::Test {
 protected:
  // `count` prompts of one letter, with completions.
  void write(const std::string& name, int count, char letter) const {
    std::string lines;
    for (int i = 0; i < count; ++i)
      lines += fmt::format(R"({{"prompt": "{0}{1}", "completion": "{0}"}})", letter, i) + "\n";
    testing::write_file(data_ / name, lines);
  }
  [[nodiscard]] RunConfig config(const std::string& name, const std::string& train, const Options& more = {}) const {
    Options all{"--data.train=" + train, "--data.tokenizer=bytes", "--model.vocab_size=260",
                "--data.packing=false",  "--data.seq_len=12",      "--data.cache=" + (data_ / "cache").string()};
    all.insert(all.end(), more.begin(), more.end());
    return tiny_.config(name, all);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (data_ / name).string(); }
  [[nodiscard]] static DataSetup opened(const RunConfig& config) {
    return open_data(config, resolve_model_config(config.model));
  }
  // Texts of rows and how often the first `samples` have them.
  static std::map<std::string, int> texts(const Dataset& data, std::uint64_t samples) {
    std::map<std::string, int> counts;
    std::vector<std::int32_t> ids(12), labels(12), positions(12);
    std::vector<SequenceRange> sequences;
    const std::unique_ptr<Tokenizer> bytes = load_tokenizer("bytes");
    for (std::uint64_t i = 0; i < samples; ++i) {
      (void)data.read(i, {ids, labels, positions}, 0, sequences);
      ++counts[bytes->decode(ids, {.skip_special = true})];
    }
    return counts;
  }

  testing::TinyRun tiny_;
  testing::TempDir data_;
};

TEST_F(DataLists, AnEpochHasEveryRecordOfEveryFileOnce) {
  write("long.jsonl", 12, 'a');
  write("short.jsonl", 3, 'b');
  const DataSetup data = opened(config("run", path("long.jsonl") + "," + path("short.jsonl")));
  ASSERT_EQ(data.train->row_count(), 15u);
  for (const auto& [text, count] : texts(*data.train, 30)) EXPECT_EQ(count, 2) << text;
  EXPECT_EQ(texts(*data.train, 15).size(), 15u);
  EXPECT_EQ(texts(*data.train, 15), texts(*opened(config("run", path("*.jsonl"))).train, 15));
  EXPECT_THAT(fmt::to_string(fmt::join(data.plan, "\n")), AllOf(HasSubstr("long.jsonl: "), HasSubstr("short.jsonl: ")));
}

TEST_F(DataLists, WeightsMakeAMix) {
  write("long.jsonl", 12, 'a');
  write("short.jsonl", 3, 'b');
  const auto share_of_b = [&](const std::string& weights) {
    const DataSetup data = opened(config("run", weights));
    int count = 0;
    for (const auto& [text, times] : texts(*data.train, 60)) count += text.starts_with('b') ? times : 0;
    return count;
  };
  const auto weighted = [&](const char* name, const char* weight) {
    return fmt::format(R"({{"path": "{}", "weight": {}}})", path(name), weight);
  };
  EXPECT_EQ(share_of_b("[" + weighted("long.jsonl", "1") + "," + weighted("short.jsonl", "1") + "]"), 30);
  EXPECT_EQ(share_of_b("[" + weighted("long.jsonl", "3") + ",\"" + path("short.jsonl") + "\"]"), 15);
}

// The last step takes what is left: padding without targets, on any number of accumulated micro-batches.
TEST_F(DataLists, TheLastStepOfAnEpochEndsWithIt) {
  write("a.jsonl", 10, 'a');
  for (const char* micro : {"1", "2", "4"}) {
    const std::string name = std::string("micro") + micro;
    const RunConfig run = config(name, path("a.jsonl"),
                                 {"~training.steps", "--training.epochs=1", "--lr_schedule.name=constant",
                                  std::string("--training.micro_batch_size=") + micro});
    EXPECT_EQ(tiny_.run(run).step, 3);
    const CheckpointReader last(tiny_.checkpoint(name, 3));
    EXPECT_EQ(last.state().samples, 10);
    EXPECT_EQ(last.state().tokens_seen, 20) << "an answer and its end, of each record once";
  }
  // The second epoch continues where the first ended.
  EXPECT_EQ(tiny_
                .run(config("micro2", path("a.jsonl"),
                            {"~training.steps", "--training.epochs=2", "--lr_schedule.name=constant"}))
                .step,
            6);
  EXPECT_EQ(CheckpointReader(tiny_.checkpoint("micro2", 6)).state().samples, 20);
}

TEST_F(DataLists, AGlobalBatchShrinksToTheData) {
  write("a.jsonl", 7, 'a');
  const Options epochs{"~training.steps",          "--training.epochs=2",         "--training.global_batch_size=32",
                       "--metrics.log_level=warn", "--lr_schedule.name=constant", "--checkpoint.interval=1"};
  testing::CapturedLog log;
  EXPECT_EQ(tiny_.run(config("run", path("a.jsonl"), epochs)).step, 3) << "14 samples in steps of 6";
  EXPECT_THAT(log.text(), AllOf(HasSubstr("the training data are 7 sequences of 12 tokens, fewer than the 32 of a "
                                          "step (training.global_batch_size): a step takes 6 of them"),
                                HasSubstr("micro-batches of 2")));
  const std::string text = log.text();
  EXPECT_EQ(text.find("the training data are"), text.rfind("the training data are")) << "said once";
  EXPECT_EQ(CheckpointReader(tiny_.checkpoint("run", 3)).state().samples, 14);
  // As a run with that batch; and resumed with the config as it was given.
  Options given = epochs;
  given[2] = "--training.global_batch_size=6";
  EXPECT_EQ(tiny_.run(config("given", path("a.jsonl"), given)).step, 3);
  EXPECT_EQ(tiny_.losses("run"), tiny_.losses("given"));
  std::filesystem::remove_all(tiny_.checkpoint("run", 3));
  EXPECT_EQ(tiny_.run(config("run", path("a.jsonl"), epochs)).step, 3);
  testing::expect_same_tensors(tiny_.checkpoint("run", 3), tiny_.checkpoint("given", 3));
}

TEST_F(DataLists, AMicroBatchShrinksToo) {
  write("a.jsonl", 3, 'a');
  const RunConfig run =
      config("run", path("a.jsonl"),
             {"--training.steps=2", "--training.micro_batch_size=8", "--training.global_batch_size=8"});
  EXPECT_EQ(tiny_.run(run).step, 2);
  EXPECT_EQ(CheckpointReader(tiny_.checkpoint("run", 2)).state().samples, 6);
}

TEST_F(DataLists, ARunShowsARecordOfEachPath) {
  write("a.jsonl", 4, 'a');
  write("b.jsonl", 4, 'b');
  const RunConfig run = config("run", path("a.jsonl") + "," + path("b.jsonl"));
  EXPECT_THAT(first_record(run, opened(run)),
              AllOf(HasSubstr("first record of " + path("a.jsonl")), HasSubstr("a0[[a"),
                    HasSubstr("first record of " + path("b.jsonl")), HasSubstr("b0[[b")));
}

class ValidationSplit : public DataLists {};

TEST_F(ValidationSplit, HeldOutRecordsAreNotTrainedOn) {
  write("long.jsonl", 30, 'a');
  write("short.jsonl", 10, 'b');
  const std::string list = path("long.jsonl") + "," + path("short.jsonl");
  std::map<std::string, int> first;
  for (const Options& packing : {Options{}, {"--data.packing=true", "--data.multipack=true"}}) {
    for (const auto& [share, count] : {std::pair("0.1", 4u), {"10", 10u}}) {
      Options options = packing;
      options.push_back(std::string("--data.validation_split=") + share);
      const DataSetup data = opened(config("run", list, options));
      std::uint64_t tokens = 0;
      for (const Dataset* part : {data.train.get(), data.validation.get()})
        for (const WeightedRows& rows : part->sources()) tokens += rows.rows->source().size();
      EXPECT_EQ(tokens, opened(config("run", list)).train->sources().front().rows->source().size());
      EXPECT_THAT(data.plan.front(), HasSubstr(fmt::format("{} of 40 records are held out", count)));
      if (!packing.empty()) continue;
      const auto trained = texts(*data.train, data.train->row_count());
      const auto held_out = texts(*data.validation, data.validation->row_count());
      EXPECT_EQ(held_out.size(), count);
      EXPECT_EQ(trained.size(), 40 - count);
      for (const auto& [text, times] : held_out) EXPECT_FALSE(trained.contains(text)) << text;
    }
  }
}

TEST_F(ValidationSplit, IsEvaluatedAndSurvivesAResume) {
  write("a.jsonl", 20, 'a');
  const auto run = [&](const std::string& name, const char* steps, const Options& more = {}) {
    Options all{"--data.validation_split=0.2", std::string("--training.steps=") + steps, "--lr_schedule.name=constant",
                "--evaluation.interval=2", "--checkpoint.interval=2"};
    all.insert(all.end(), more.begin(), more.end());
    return tiny_.run(config(name, path("a.jsonl"), all));
  };
  run("whole", "4");
  run("parts", "2");
  run("parts", "4");
  EXPECT_EQ(tiny_.losses("whole"), tiny_.losses("parts"));
  EXPECT_EQ(testing::read_file(tiny_.folder("whole") / "metrics/evaluations.jsonl").empty(), false);
  try {
    run("parts", "6", {"--data.validation_split=0.3"});
    FAIL() << "another split is accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.validation_split: 0.2 -> 0.3"));
  }
}

TEST_F(ValidationSplit, ImpossibleSplitsAreRefused) {
  write("a.jsonl", 4, 'a');
  const auto refusal = [&](const Options& options) {
    try {
      (void)opened(config("run", path("a.jsonl"), options));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({"--data.validation_split=4"}),
              HasSubstr("data.validation_split: 4 held out of 4 records leaves none to train on"));
  EXPECT_THAT(refusal({"--data.validation_split=1.5"}), HasSubstr("expected a fraction below 1, or a whole number"));
  EXPECT_THAT(refusal({"--data.validation_split=0"}), HasSubstr("data.validation_split"));
  EXPECT_THAT(refusal({"--data.validation_split=0.5", "--data.validation=" + path("a.jsonl")}),
              HasSubstr("but data.validation names held-out data"));
}

TEST_F(ValidationSplit, PairsStayWhole) {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += fmt::format(R"({{"prompt": "q{0}", "chosen": "y{0}", "rejected": "n{0}"}})", i) + "\n";
  testing::write_file(data_ / "pairs.jsonl", lines);
  const RunConfig run = config("run", path("pairs.jsonl"),
                               {"--preference.loss=dpo", "--data.validation_split=0.25", "--data.seq_len=32"});
  const DataSetup data = opened(run);
  EXPECT_EQ(data.validation->sources().front().rows->item_count(), 5u);
  EXPECT_EQ(data.train->sources().front().rows->item_count(), 15u);
}

}  // namespace
}  // namespace quench
