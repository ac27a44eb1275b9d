// Runs that continue after a checkpoint could not be saved, through the program.

#include <gmock/gmock.h>

#include <algorithm>

#include "core/json/json.h"
#include "core/system/check.h"
#include "tests/fault/process.h"
#include "tests/testing.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::Finished;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::write_file;
using Options = std::vector<std::string>;

class FailedSave : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i * 37 % 101) + " of the text\n";
    write_file(folder_ / "text.txt", text);
    Json config = Json::parse(R"({
      "model": {"model_type": "llama", "vocab_size": 260, "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                "max_position_embeddings": 64, "tie_word_embeddings": true},
      "data": {"tokenizer": "bytes", "seq_len": 24},
      "training": {"steps": 12, "micro_batch_size": 2, "dtype": "f32", "threads": 1},
      "optimizer": {"lr": 1e-2},
      "checkpoint": {"interval": 1, "keep_latest": 0},
      "metrics": {"log_every": 1, "tensorboard": false, "progress": "off"}})");
    write_file(folder_ / "run.json", config.dump());
  }

  // No space for the data of the checkpoint `full`, always or the first time.
  [[nodiscard]] Finished train(const std::string& full, const Options& more, bool always = true) const {
    Options command{testing::program_path(),
                    "train",
                    (folder_ / "run.json").string(),
                    "--device=cpu",
                    "--data.train=" + (folder_ / "text.txt").string(),
                    "--run.folder=" + (folder_ / "run").string()};
    command.insert(command.end(), more.begin(), more.end());
    const std::string fault = fmt::format("do=ENOSPC;{}ops=fallocate;path={}.tmp-", always ? "" : "at=1;", full);
    return testing::Process(command, fault).wait();
  }
  [[nodiscard]] Options checkpoints() const {
    Options names;
    for (const auto& entry : fs::directory_iterator(folder_ / "run/checkpoints"))
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }

  testing::TempDir folder_;
};

// Continues three good steps with a learning rate under which step 5 is not finite, also after a rollback. Step 4
// cannot be saved.
class FailedSaveBeforeError : public FailedSave {
 protected:
  [[nodiscard]] Finished train_on(const std::string& on_nonfinite, bool always) const {
    const Finished good = train("none", {"--training.steps=3"});
    EXPECT_EQ(good.status, 0) << good.output;
    Finished run = train(
        "step-4", {"--optimizer.lr=1000", "--training.max_norm=0", "--training.on_nonfinite=" + on_nonfinite}, always);
    EXPECT_EQ(run.status, 1) << run.output;
    EXPECT_THAT(run.output, AllOf(HasSubstr("saving step 4 failed"), HasSubstr("step 5: loss ")));
    return run;
  }
};

TEST_F(FailedSaveBeforeError, DoesNotPreventARollback) {
  const Finished run = train_on("rollback", true);
  EXPECT_THAT(run.output, AllOf(HasSubstr("rolled back to step 3"), HasSubstr("already rolled back from step 5")));
  EXPECT_THAT(checkpoints(), ElementsAre("step-1", "step-2", "step-3"));
}

TEST_F(FailedSaveBeforeError, IsRetriedBeforeTheEnd) {
  const Finished run = train_on("stop", false);
  EXPECT_THAT(run.output, AllOf(HasSubstr("the run failed; the state after step 4 is saved"),
                                Not(HasSubstr("could not be saved"))));
  EXPECT_THAT(checkpoints(), ElementsAre("step-1", "step-2", "step-3", "step-4"));
}

// The evaluation after the last step starts a save; its failure is known before the end.
TEST_F(FailedSave, IsRetriedWhereTheRunEndsAtThatStep) {
  const Finished run =
      train("step-3",
            {"--training.steps=3", "--checkpoint.interval=0", "--checkpoint.keep_best=true", "--evaluation.interval=3",
             "--evaluation.steps=1", "--data.validation=" + (folder_ / "text.txt").string()},
            false);
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("1 of 2 checkpoints could not be saved"));
  EXPECT_THAT(checkpoints(), ElementsAre("step-3"));
}

TEST_F(FailedSave, IsReportedAfterTheExport) {
  for (const std::string async : {"true", "false"}) {
    const Finished run = train("step-6", {"--export.format=hf", "--checkpoint.interval=3",
                                          "--checkpoint.async=" + async, "--checkpoint.resume=never"});
    EXPECT_EQ(run.status, 1) << run.output;
    EXPECT_THAT(run.output, HasSubstr("1 of 4 checkpoints could not be saved; the first: cannot reserve"));
    EXPECT_THAT(checkpoints(), ::testing::IsSupersetOf({"step-3", "step-9", "step-12"}));
    EXPECT_TRUE(fs::exists(folder_ / "run/export/model.safetensors"));
    EXPECT_LT(run.output.find("  export: "), run.output.find("could not be saved")) << run.output;
    fs::remove_all(folder_ / "run");
  }
}

}  // namespace
}  // namespace quench
