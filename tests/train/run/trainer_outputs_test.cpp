// Files written by a run, and files that it must keep.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/system/check.h"
#include "tests/train/metrics/captured_log.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/checkpoint/checkpoint_list.h"
#include "train/checkpoint/run_lock.h"
#include "train/model_source/run_layout.h"
#include "train/run_folder/run_outputs.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_file;
using testing::TinyRun;
using testing::write_file;

const std::vector<std::string> kShort{"--training.steps=4", "--checkpoint.interval=2", "--lr_schedule.name=constant"};

std::vector<std::string> with(std::vector<std::string> more) {
  more.insert(more.begin(), kShort.begin(), kShort.end());
  return more;
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(TrainerOutputs, CheckpointsMayLieElsewhere) {
  const TinyRun tiny;
  const fs::path scratch = tiny.folder("scratch") / "of" / "mine";
  const auto elsewhere = with({"--checkpoint.folder=" + scratch.string()});
  tiny.run(tiny.config("run", elsewhere));
  EXPECT_EQ(latest_valid(scratch)->step, 4);
  EXPECT_EQ(latest_valid(checkpoint_folder_of(tiny.folder("run")))->step, 4) << "found by the run folder";
  auto longer = elsewhere;
  longer.push_back("--training.steps=6");
  EXPECT_EQ(tiny.run(tiny.config("run", longer)).step, 6);
  EXPECT_EQ(tiny.losses("run").size(), 6u) << "resumed, not begun again";
}

TEST(TrainerOutputs, HeldOutDataOfLessThanASequenceAreWarnedAbout) {
  const TinyRun tiny;
  const auto validation = [&](const std::string& name, int length) {
    ShardWriter writer(tiny.folder(name), {.vocab_size = 64, .eos_id = 0});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(length), 5);
    tokens.push_back(0);
    writer.append(tokens);
    writer.end_document();
    writer.finish();
    return with({"--data.validation=" + tiny.folder(name).string(), "--evaluation.interval=2"});
  };
  {
    const testing::CapturedLog log;
    tiny.run(tiny.config("few", validation("few.bin", 2)));
    EXPECT_THAT(log.text(),
                HasSubstr("data.validation holds 3 tokens, less than one sequence of 24 (data.seq_len): the "
                          "validation loss is that of these 3 tokens alone"));
  }
  const testing::CapturedLog log;
  tiny.run(tiny.config("enough", validation("enough.bin", 60)));
  EXPECT_THAT(log.text(), Not(HasSubstr("data.validation holds")));
}

TEST(TrainerOutputs, TheFirstStepsOfARunAreRecordedEach) {
  const TinyRun tiny;
  const auto steps = [&] {
    std::string text;
    for (const std::string& loss : tiny.losses("run")) text += loss.substr(0, loss.find(':')) + " ";
    return text;
  };
  tiny.run(tiny.config("run", with({"--training.steps=7", "--metrics.log_every=15"})));
  EXPECT_EQ(steps(), "1 2 3 4 5 6 7 ");
  tiny.run(tiny.config("run", with({"--training.steps=32", "--metrics.log_every=15"})));
  EXPECT_EQ(steps(), "1 2 3 4 5 6 7 8 9 10 15 30 32 ");
}

TEST(TrainerOutputs, ResumesAreEventsOfTheRun) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", kShort));
  const fs::path events = tiny.folder("run") / "metrics/events.jsonl";
  EXPECT_FALSE(fs::exists(events));
  tiny.run(tiny.config("run", kShort));
  EXPECT_FALSE(fs::exists(events)) << "a finished run takes no step";
  tiny.run(tiny.config("run", with({"--training.steps=6"})));
  const Json event = Json::parse(read_file(events));
  EXPECT_EQ(event.at("step").as_int(), 4);
  EXPECT_EQ(event.at("event").as_string(), "resume");
}

TEST(TrainerOutputs, CheckpointsMayGoThroughALink) {
  const TinyRun tiny;
  fs::create_directories(tiny.folder("scratch"));
  fs::create_directories(tiny.folder("run"));
  fs::create_directory_symlink(tiny.folder("scratch"), tiny.folder("run") / "checkpoints");
  tiny.run(tiny.config("run", kShort));
  EXPECT_EQ(latest_valid(tiny.folder("scratch"))->step, 4);
  EXPECT_EQ(tiny.run(tiny.config("run", with({"--training.steps=6"}))).step, 6);
  EXPECT_EQ(tiny.losses("run").size(), 6u);
}

TEST(TrainerOutputs, TwoRunsCannotShareACheckpointFolder) {
  const TinyRun tiny;
  const RunLock other(tiny.folder("scratch"));
  const RunConfig config = tiny.config("run", with({"--checkpoint.folder=" + tiny.folder("scratch").string()}));
  EXPECT_THAT(refusal([&] { tiny.run(config); }), HasSubstr("locked by"));
  const RunConfig inside = tiny.config("run", kShort);
  const RunLock first(tiny.folder("run") / "checkpoints");
  EXPECT_THAT(refusal([&] { tiny.run(inside); }), HasSubstr("locked by"));
}

TEST(TrainerOutputs, ANewRunKeepsTheCheckpointsOfTheOneBefore) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", kShort));
  const fs::path folder = tiny.folder("run") / "checkpoints";
  const std::string before = read_file(folder / "step-4" / "manifest.json");
  tiny.run(tiny.config("run", with({"--checkpoint.resume=never", "--training.seed=7"})));
  EXPECT_EQ(read_file(folder / "earlier-1" / "step-4" / "manifest.json"), before);
  EXPECT_TRUE(verify_checkpoint(folder / "earlier-1" / "step-2").ok());
  EXPECT_NE(read_file(folder / "step-4" / "manifest.json"), before);
  EXPECT_EQ(latest_valid(folder)->step, 4);
}

TEST(TrainerOutputs, AHandWrittenConfigIsNotReplaced) {
  const TinyRun tiny;
  fs::create_directories(tiny.folder("run"));
  write_file(tiny.folder("run") / "config.json", "{\"mine\": true}");
  EXPECT_THAT(refusal([&] { tiny.run(tiny.config("run", kShort)); }), HasSubstr("run.folder"));
  EXPECT_THAT(refusal([&] { (void)tiny.config("run", kShort); }), HasSubstr("config.json")) << "check says the same";
  EXPECT_EQ(read_file(tiny.folder("run") / "config.json"), "{\"mine\": true}");
}

TEST(TrainerOutputs, AConfigEditedInTheRunFolderIsKept) {
  const TinyRun tiny;
  tiny.run(tiny.config("run", kShort));
  const fs::path file = tiny.folder("run") / "config.json";
  const std::string edited = "// my notes\n" + read_file(file);
  write_file(file, edited);
  tiny.run(tiny.config("run", with({"--training.steps=6"})));
  EXPECT_EQ(read_file(tiny.folder("run") / "config.json.1"), edited);
  EXPECT_THAT(read_file(file), HasSubstr("\"steps\": 6"));
  tiny.run(tiny.config("run", with({"--training.steps=8"})));
  EXPECT_FALSE(fs::exists(tiny.folder("run") / "config.json.2")) << "what the program wrote is not set aside";
}

TEST(TrainerOutputs, ABadExportFolderIsReportedBeforeTraining) {
  const TinyRun tiny;
  fs::create_directories(tiny.folder("thesis"));
  write_file(tiny.folder("thesis") / "config.json", "{}");
  write_file(tiny.folder("thesis") / "chapter.tex", "mine");
  const auto config = [&](const std::string& folder) {
    return tiny.config("run", with({"--export.format=hf", "--export.folder=" + tiny.folder(folder).string()}));
  };
  EXPECT_THAT(refusal([&] { tiny.run(config("thesis")); }), HasSubstr("chapter.tex"));
  EXPECT_THAT(refusal([&] { tiny.run(config("run")); }), HasSubstr("export.folder"));
  EXPECT_THAT(refusal([&] { tiny.run(config("run/checkpoints")); }), HasSubstr("export.folder"));
  EXPECT_THAT(refusal([&] { tiny.run(config("train.bin")); }), HasSubstr("it exists and is not a folder"));
  EXPECT_FALSE(fs::exists(tiny.folder("run"))) << "refused before anything was written";

  // Files that appear in the folder after the config was read are detected before training.
  const RunConfig early = config("later");
  fs::create_directories(tiny.folder("later"));
  write_file(tiny.folder("later") / "notes.txt", "mine");
  EXPECT_THAT(refusal([&] { tiny.run(early); }), HasSubstr("notes.txt"));
  EXPECT_FALSE(fs::exists(tiny.folder("run") / "metrics"));
  EXPECT_EQ(read_file(tiny.folder("thesis") / "chapter.tex"), "mine");
}

TEST(TrainerOutputs, ExportMayBeWrittenBesideOtherFilesWhenAsked) {
  const TinyRun tiny;
  fs::create_directories(tiny.folder("model"));
  write_file(tiny.folder("model") / "README.md", "mine");
  tiny.run(tiny.config("run", with({"--export.format=hf", "--export.folder=" + tiny.folder("model").string(),
                                    "--export.overwrite=true"})));
  EXPECT_EQ(read_file(tiny.folder("model") / "README.md"), "mine");
  EXPECT_TRUE(fs::exists(tiny.folder("model") / "model.safetensors"));
}

TEST(TrainerOutputs, AFileWhereAFolderMustBeIsAFault) {
  const TinyRun tiny;
  write_file(tiny.folder("file"), "mine");
  const std::string path = tiny.folder("file").string();
  for (const std::string key : {"checkpoint.folder", "metrics.folder"})
    EXPECT_THAT(refusal([&] { (void)tiny.config("run", with({"--" + key + "=" + path})); }), HasSubstr(key));
}

}  // namespace
}  // namespace quench
