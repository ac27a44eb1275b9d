// Messages of runs: mistakes of a launch, sizes beyond a CPU, sizes on disk.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;

class RunMessages : public testing::RunProject {
 protected:
  static std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
};

TEST_F(RunMessages, AMistakeInALaunchedRunsConfigIsPrintedOnce) {
  for (const std::string wrong :
       {"--training.bogus=3", "--optimizer.lr=-1", "--recipe.filter.exclude=nothere.*", "--data.train=absent.txt"}) {
    const Outcome outcome = run({"run", "--standalone", "--nproc-per-node", "3", "train", "run.json", wrong});
    EXPECT_EQ(outcome.status, 2) << wrong;
    EXPECT_EQ(count(outcome.errors, "error: "), 1u) << outcome.errors;
    EXPECT_THAT(outcome.errors, ::testing::ContainsRegex("rank 2 on |rank +: 2 "))
        << "as another rank, or the first one";
    EXPECT_EQ(count(outcome.errors, "the same message"), 2u) << outcome.errors;
  }
}

TEST_F(RunMessages, ARunOfManyFlopsOnACpuIsWarnedAboutOnce) {
  const std::string words = "FLOPs a step on the CPU";
  const Outcome large = run({"train", "run.json", "--device=cpu", "--training.global_batch_size=500000"});
  EXPECT_EQ(count(large.errors, words), 1u) << large.errors;
  EXPECT_THAT(large.errors, AllOf(HasSubstr("training.global_batch_size (500000)"), HasSubstr("data.seq_len (32)")));
  EXPECT_THAT(run({"train", "run.json", "--device=cpu", "--training.steps=2"}).errors, Not(HasSubstr(words)));
}

TEST_F(RunMessages, AnEstimateSaysWhatCheckpointsTakeOnDisk) {
  const Outcome text = run({"estimate", "run.json", "--checkpoint.keep_latest=2", "--checkpoint.keep_best=true"});
  ASSERT_EQ(text.status, 0) << text.errors;
  EXPECT_THAT(text.output, AllOf(HasSubstr("one checkpoint on disk: 1.5 MiB, 1.0 of them optimizer state"),
                                 HasSubstr("checkpoint.folder: up to 6.2 MiB, 4 of them with the one being written "
                                           "(checkpoint.keep_latest)")));
  const Json json = Json::parse(run({"estimate", "run.json", "--json"}).output);
  EXPECT_EQ(json.at("checkpoint_state_bytes").as_int() * 3, json.at("checkpoint_bytes").as_int() * 2);
  EXPECT_EQ(json.at("checkpoint_count").as_int(), 4);
}

}  // namespace
}  // namespace quench
