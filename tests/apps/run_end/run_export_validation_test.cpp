// The validation loss of a run's quantized export: measured, compared, improved on.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::read_file;

class RunExportValidation : public testing::RunProject {
 protected:
  // Two bits after training at a high rate lose far more than the threshold.
  [[nodiscard]] Outcome train(std::vector<std::string> more) const {
    more.insert(more.begin(), {"train", "run.json", "--optimizer.lr=3e-2", "--optimizer.weight_decay=0",
                               "--evaluation.steps=0", "--export.scheme=int2_weight_only_g32"});
    return run(more);
  }
  [[nodiscard]] std::vector<Json> evaluations(const std::string& folder = "run") const {
    std::vector<Json> records;
    std::istringstream lines(read_file(work() / folder / "metrics" / "evaluations.jsonl"));
    for (std::string line; std::getline(lines, line);) records.push_back(Json::parse(line));
    return records;
  }
  static double loss(const Json& record) { return record.at("values").at("loss").as_double(); }
};

TEST_F(RunExportValidation, MatchesWrittenFolder) {
  const Outcome done = train({"--export.scheme=int8_weight_only"});
  ASSERT_EQ(done.status, 0) << done.errors;
  const std::vector<Json> records = evaluations();
  EXPECT_EQ(records.back().at("name").as_string(), "export_rtn");
  const double trained = loss(records[records.size() - 2]), exported = loss(records.back());
  EXPECT_NE(trained, exported);
  EXPECT_NEAR(trained, exported, 0.01);
  EXPECT_THAT(done.output, HasSubstr(fmt::format("export: validation loss {:.4f} as trained, {:.4f} as exported by rtn",
                                                 trained, exported)));
  EXPECT_THAT(done.errors, Not(HasSubstr("the export loses")));
  EXPECT_THAT(
      read_file(work() / "run/export/README.md"),
      HasSubstr(fmt::format("{:.4f} a token on val.bin; {:.4f} before", std::exp(exported), std::exp(trained))));
  // Adapters that have learned nothing yet, over the folder's codes: the loss of the folder on the same rows.
  expect_ok({"train", "run.json", "--model.path=run/export", "--unset=model.preset,model.vocab_size", "--lora.rank=4",
             "--lora.base=stored", "--training.steps=1", "--optimizer.lr=1e-30", "--evaluation.interval=1",
             "--evaluation.steps=0", "--run.folder=over"});
  EXPECT_NEAR(loss(evaluations("over").at(0)), exported, 1e-5);
  EXPECT_NEAR(Json::parse(run({"inspect", "run", "--json"}).output).at("export_validation").at("loss").as_double(),
              exported, 1e-9);
  expect_ok({"report", "run"});
  EXPECT_THAT(read_file(work() / "run/report.html"), HasSubstr(R"("exported":{"method":)"));
}

TEST_F(RunExportValidation, ARiseIsWarnedOfWithTheCommandThatMendsIt) {
  const Outcome done = train({"--run.folder=my run"});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, AllOf(HasSubstr("the export loses more than 1% of perplexity: validation loss "),
                                 HasSubstr("quench train 'my run/config.json' --export.method=auto")));
  const double nearest = loss(evaluations("my run").at(2));
  const Outcome better = run({"train", "my run/config.json", "--export.method=auto"});
  ASSERT_EQ(better.status, 0) << better.errors;
  const std::vector<Json> records = evaluations("my run");
  EXPECT_EQ(records.back().at("name").as_string(), "export_gptq");
  EXPECT_NEAR(loss(records[records.size() - 2]), nearest, 1e-9);
  EXPECT_LT(loss(records.back()), nearest);
  EXPECT_THAT(better.output, HasSubstr(fmt::format("{:.4f} as exported by gptq", loss(records.back()))));
  EXPECT_THAT(read_file(work() / "my run/export/README.md"),
              AllOf(HasSubstr("gptq"), HasSubstr("rows of the training data")));
  (void)continuation(run(generate("my run/export")));
}

TEST_F(RunExportValidation, AutoTakesGptqForAdaptersToo) {
  make_base();
  const Outcome done = train({"--lora.rank=8", "--export.method=auto", "--export.calibration_samples=20"});
  ASSERT_EQ(done.status, 0) << done.errors;
  const std::vector<Json> records = evaluations();
  EXPECT_EQ(records.back().at("name").as_string(), "export_gptq");
  EXPECT_LT(loss(records.back()), loss(records[records.size() - 2]));
  EXPECT_THAT(read_file(work() / "run/export/README.md"), HasSubstr("20 rows of the training data"));
}

TEST_F(RunExportValidation, AutoKeepsRoundingThatLosesLittle) {
  const Outcome done = train({"--export.scheme=int8_weight_only", "--export.method=auto"});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, AllOf(HasSubstr("as exported by rtn"), Not(HasSubstr("gptq"))));
}

TEST_F(RunExportValidation, AutoLeavesTrainedCodesAlone) {
  const Outcome done =
      train({"--recipe.name=qat_int4_weight_only", "--export.scheme=int4_weight_only_g32", "--export.method=auto"});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.output, AllOf(HasSubstr("as exported by qat"), Not(HasSubstr("gptq"))));
  const std::vector<Json> records = evaluations();
  EXPECT_NEAR(loss(records.back()), loss(records[records.size() - 2]), 1e-3);
}

TEST_F(RunExportValidation, AutoNeedsAValidationLoss) {
  const Outcome refused = train({"--export.method=auto", "--evaluation.interval=0"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.errors, HasSubstr("export.method: auto needs the validation loss of the export"));
}

TEST_F(RunExportValidation, ProcessesOfALaunchAgree) {
  const Outcome done = run({"run", "--standalone", "--nproc-per-node", "2", "train", "run.json", "--optimizer.lr=3e-2",
                            "--training.steps=200",

                            "--export.scheme=int2_weight_only_g32", "--export.method=auto"});
  ASSERT_EQ(done.status, 0) << done.errors;
  const std::vector<Json> records = evaluations();
  EXPECT_EQ(records.back().at("name").as_string(), "export_gptq");
  EXPECT_LT(loss(records.back()), loss(records[records.size() - 2]));
}

}  // namespace
}  // namespace quench
