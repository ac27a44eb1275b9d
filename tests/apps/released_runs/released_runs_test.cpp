// Runs that a released version began continue, bit for bit but for the vector width of the processor.

#include <gmock/gmock.h>

#include "core/json/json.h"
#include "tests/apps/program.h"

namespace quench {
namespace {

using testing::read_file;

class ReleasedRun : public ::testing::TestWithParam<const char*> {};

// tests/apps/released_runs/VERSION: run.json, its data, the run folder after step 4, and losses of that version's
// later steps.
TEST_P(ReleasedRun, Continues) {
  const testing::TempDir folder;
  std::filesystem::copy(testing::source_dir() / "tests/apps/released_runs" / GetParam(), folder / "work",
                        std::filesystem::copy_options::recursive);
  const testing::Outcome done =
      testing::run_program(folder / "work", {"train", "run.json", "--run.folder=run", "--device=cpu", "--quiet"});
  ASSERT_EQ(done.status, 0) << done.errors;
  EXPECT_THAT(done.errors, ::testing::Not(::testing::HasSubstr("warning")));
  std::map<std::int64_t, double> losses;
  std::istringstream lines(read_file(folder / "work/run/metrics/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    losses[record.at("step").as_int()] = record.at("loss").as_double();
  }
  EXPECT_EQ(losses.size(), 8u);
  const Json figures = Json::parse_file(folder / "work/figures.json");
  for (const auto& [step, loss] : figures.at("losses").as_object())
    EXPECT_NEAR(losses[std::stoll(step)], loss.as_double(), 1e-4) << step;
}

INSTANTIATE_TEST_SUITE_P(Versions, ReleasedRun, ::testing::Values("0.3.0"), [](const auto&) { return "Of030"; });

}  // namespace
}  // namespace quench
