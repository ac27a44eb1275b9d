// `quench tune`: from a model and records to a quantized file.

#include <gmock/gmock.h>

#include "export/formats/gguf/reader.h"
#include "tests/apps/run_project.h"

namespace quench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TuneVerbSlow : public RunProject {
 protected:
  void SetUp() override {
    RunProject::SetUp();
    make_base();
    std::string chats;
    for (int i = 0; i < 60; ++i)
      chats += fmt::format(R"({{"prompt": "a dog {}", "completion": "sees the river"}})", i % 7) + "\n";
    write_file(work() / "chats.jsonl", chats);
  }

  Outcome tune(std::vector<std::string> more) const {
    std::vector<std::string> arguments{"tune",
                                       "--model",
                                       "base",
                                       "--data",
                                       "chats.jsonl",
                                       "--device=cpu",
                                       "--data.seq_len=32",
                                       "--export.calibration_samples=4",
                                       "--export.calibration_seq_len=16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  [[nodiscard]] std::int64_t file_type(const std::string& file) const {
    return read_gguf_head(work() / file).metadata.at("general.file_type").as_int();
  }
};

TEST_F(TuneVerbSlow, WritesTheFileThatItsNameSaysAndAReport) {
  const Outcome made = tune({"--to", "out/mine.Q5_K_M.gguf"});
  ASSERT_EQ(made.status, 0) << made.errors << made.output;
  EXPECT_EQ(file_type("out/mine.Q5_K_M.gguf"), 17);
  const std::filesystem::path run_folder = work() / "out" / "mine.Q5_K_M-run";
  EXPECT_TRUE(std::filesystem::exists(run_folder / "report.html"));
  EXPECT_THAT(made.output, AllOf(HasSubstr("wrote out/mine.Q5_K_M-run/report.html"), HasSubstr("validation")));
  // The written file was evaluated on the held-out records.
  EXPECT_THAT(read_file(run_folder / "metrics" / "evaluations.jsonl"), HasSubstr("export_rtn"));
  const Outcome answer =
      run({"generate", "--model", "out/mine.Q5_K_M.gguf", "--prompt", "a dog", "--max-new-tokens", "4"});
  EXPECT_EQ(answer.status, 0) << answer.errors;
  // The command once more: the run is finished, the file is written again.
  EXPECT_EQ(tune({"--to", "out/mine.Q5_K_M.gguf"}).status, 0);
}

TEST_F(TuneVerbSlow, TakesSchemesFoldersAndKeysOfTheConfig) {
  const Outcome plain = tune({"--to", "plain.gguf", "--run-folder", "r", "--training.epochs=2"});
  ASSERT_EQ(plain.status, 0) << plain.errors;
  EXPECT_EQ(file_type("plain.gguf"), 15);
  EXPECT_THAT(read_file(work() / "r" / "config.json"), HasSubstr("\"epochs\": 2"));
  const Outcome folder = tune({"--to", "dense", "--quiet"});
  ASSERT_EQ(folder.status, 0) << folder.errors;
  EXPECT_TRUE(std::filesystem::exists(work() / "dense" / "model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(work() / "dense-run" / "report.html"));
}

TEST_F(TuneVerbSlow, RefusesMistakesBeforeAnythingIsWritten) {
  const auto refuses = [&](std::vector<std::string> more, const std::string& message) {
    const Outcome outcome = tune(std::move(more));
    EXPECT_EQ(outcome.status, 2) << outcome.output;
    EXPECT_THAT(outcome.errors, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(work() / "x-run")) << message;
    EXPECT_FALSE(std::filesystem::exists(work() / "x.gguf")) << message;
  };
  refuses({"--to", "x.gguf", "--scheme", "q4_k_x"}, "q4_k_m");
  refuses({"--to", "x.gguf", "--training.epoch=2"}, "training.epochs");
  refuses({"--to", "x.gguf", "more"}, "'more' is no option of quench tune");
  refuses({}, "--to");
}

}  // namespace
}  // namespace quench::testing
