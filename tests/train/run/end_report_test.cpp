// The summary that a run ends with.

#include "train/run/end_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "export/table/format.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TinyRun;

RunConfig run_in(const std::string& folder) {
  RunConfig config;
  config.run.folder = folder;
  config.training.steps = 40;
  config.data.validation = {{"held out.txt"}};
  return config;
}

RunEnd whole_run() {
  return {.step = 40,
          .steps = 40,
          .seconds = 75,
          .tokens = 12345,
          .tokens_seen = 12345,
          .loss = 2.5,
          .validation = {.best = ValidationLosses::Entry{20, 2.25}, .last = ValidationLosses::Entry{40, 2.375}},
          .checkpoint = "runs/a/checkpoints/step-40",
          .has_tokenizer = true};
}

TEST(EndReport, SaysFiguresResultsAndNextCommands) {
  EXPECT_EQ(end_report(run_in("runs/a"), whole_run()),
            "finished step 40 of 40: 40 steps in 0:01:15, 12,345 trained tokens\n"
            "  loss: training 2.5000, validation 2.3750 at step 40, best validation 2.2500 at step 20\n"
            "  checkpoints: runs/a/checkpoints, the newest runs/a/checkpoints/step-40\n"
            "  next:\n"
            "    quench generate --model runs/a --prompt \"Once upon a time\"\n"
            "    quench eval --model runs/a --data 'held out.txt'\n"
            "    quench export --checkpoint runs/a --format hf --output runs/a-export\n"
            "    quench train runs/a/config.json --training.steps=80\n"
            "    quench report runs/a\n");
}

TEST(EndReport, AStoppedRunIsResumedByItsConfig) {
  RunEnd end = whole_run();
  end.step = 17;
  end.first_step = 10;
  end.stop_signal = 15;
  end.tokens = 1000;
  const std::string text = end_report(run_in("runs/a"), end);
  EXPECT_THAT(text, HasSubstr("stopped by SIGTERM at step 17 of 40: 7 steps in 0:01:15, 1,000 trained tokens (12,345 "
                              "over all starts)"));
  EXPECT_THAT(text, HasSubstr("\n    quench train runs/a/config.json\n"));
  end.stop_signal = 2;
  EXPECT_THAT(end_report(run_in("runs/a"), end), HasSubstr("stopped by Ctrl-C at step 17 of 40"));
}

TEST(EndReport, AnExportedModelIsTheOneToUse) {
  RunConfig config = run_in("runs/a");
  config.export_model.emplace().format = "hf";
  RunEnd end = whole_run();
  end.exported = "models/a";
  end.chats = true;
  const std::string text = end_report(config, end);
  EXPECT_THAT(text, AllOf(HasSubstr("  export: models/a, hf\n"),
                          HasSubstr("quench generate --model models/a --chat --prompt \"Hello\"\n"),
                          HasSubstr("quench eval --model models/a "), Not(HasSubstr("quench export"))));
}

TEST(EndReport, LossesOfAnExportStandBesideThoseOfTheModel) {
  RunConfig config = run_in("runs/a");
  config.export_model.emplace().format = "hf";
  RunEnd end = whole_run();
  end.exported = "models/a";
  end.export_validation = ExportValidation{.trained = 0.5, .kept = {"gptq", 0.53}, .discarded = {{"rtn", 0.75}}};
  EXPECT_TRUE(end.export_validation->is_notable());
  EXPECT_THAT(end_report(config, end),
              HasSubstr("  export: validation loss 0.5000 as trained, 0.5300 as exported by gptq (perplexity 1.6487, "
                        "1.6989); 0.7500 by rtn\n"));
  end.export_validation->kept.loss = std::nan("");
  EXPECT_TRUE(end.export_validation->is_notable());
  end.export_validation->kept.loss = 0.505;
  EXPECT_FALSE(end.export_validation->is_notable());
}

TEST(EndReport, FoldersThatBeginWithADashAreNoOptions) {
  EXPECT_THAT(end_report(run_in("-a"), whole_run()),
              AllOf(HasSubstr("--checkpoint ./-a "), HasSubstr("--output ./-a-export\n"), HasSubstr("report ./-a\n")));
}

TEST(EndReport, AdaptersAreMergedFromTheRun) {
  RunConfig config = run_in("runs/a");
  config.lora.emplace();
  config.export_model.emplace().format = kPeftFormat;
  RunEnd end = whole_run();
  end.exported = "runs/a/export";
  const std::string text = end_report(config, end);
  EXPECT_THAT(text, AllOf(HasSubstr("quench generate --model runs/a --prompt"),
                          HasSubstr("quench merge-lora --model runs/a --output runs/a-merged\n")));
}

TEST(EndReport, CommandsQuotePathsForAShell) {
  const std::string text = end_report(run_in("it's\x1b[2J"), whole_run());
  EXPECT_THAT(text, HasSubstr(R"(--model $'it\'s\x1b[2J')"));
  EXPECT_EQ(text.find("report 'it"), std::string::npos);
  EXPECT_THAT(end_report(run_in("it's"), whole_run()), HasSubstr(R"(quench report 'it'\''s')"));
}

TEST(EndReport, WithoutResultsNothingIsOffered) {
  RunConfig config = run_in("runs/a");
  config.metrics.jsonl = false;
  RunEnd end = whole_run();
  end.checkpoint.clear();
  end.validation = {};
  EXPECT_EQ(end_report(config, end),
            "finished step 40 of 40: 40 steps in 0:01:15, 12,345 trained tokens\n  loss: training 2.5000\n"
            "  checkpoints: none\n");
}

TEST(EndReport, BestLossIsFinite) {
  ValidationLosses losses;
  losses.add({5, 2.0});
  losses.add({10, std::nan("")});
  EXPECT_EQ(losses.best->step, 5);
  EXPECT_EQ(losses.last->step, 10);
}

TEST(EndReport, ARunWritesItIntoItsLog) {
  const TinyRun tiny;
  const std::string data = "--data.validation=" + (tiny.folder("train.bin")).string();
  const std::vector<std::string> common{data, "--evaluation.interval=5", "--evaluation.steps=2",
                                        "--lr_schedule.name=constant"};
  std::vector<std::string> first = common, more = common;
  first.push_back("--training.steps=10");
  more.push_back("--training.steps=15");
  tiny.run(tiny.config("run", first));
  const std::string log = testing::read_file(tiny.folder("run") / "log.txt");
  EXPECT_THAT(log, AllOf(HasSubstr("finished step 10 of 10: 10 steps in 0:00:"), HasSubstr("best validation "),
                         HasSubstr("the newest " + tiny.checkpoint("run", 10).string()), HasSubstr("quench report ")));
  tiny.run(tiny.config("run", more));
  const std::string both = testing::read_file(tiny.folder("run") / "log.txt");
  EXPECT_THAT(both, AllOf(HasSubstr("finished step 15 of 15: 5 steps in "), HasSubstr(" over all starts)")));
  EXPECT_EQ(read_validation_losses((tiny.folder("run") / "metrics").string(), 10).last->step, 10);
  EXPECT_EQ(read_validation_losses((tiny.folder("run") / "metrics").string(), 100).last->step, 15);
}

}  // namespace
}  // namespace quench
