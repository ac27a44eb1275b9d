// Sequences in parts: what parallel.context contradicts.

#include <gmock/gmock.h>

#include "config_testing.h"

namespace quench {
namespace {

using testing::complaint;
using ::testing::HasSubstr;

TEST(ContextCheck, PartsOfSequencesMustDivideThem) {
  EXPECT_THAT(complaint({"--parallel.context=2", "--data.seq_len=18"}),
              HasSubstr("data.seq_len: 18 is not divisible by 2 x parallel.context 2 = 4; nearest: 16 or 20"));
  EXPECT_EQ(complaint({"--parallel.context=3", "--data.seq_len=18"}), "");
  EXPECT_EQ(complaint({"--parallel.context=1", "--data.seq_len=17"}), "");
}

TEST(ContextCheck, ObjectivesThatNeedWholeSequencesRefuseParts) {
  const std::vector<std::string> context = {"--parallel.context=2", "--data.seq_len=32"};
  const auto reason = [&](std::vector<std::string> more) {
    more.insert(more.end(), context.begin(), context.end());
    return complaint(more);
  };
  EXPECT_THAT(reason({"--grpo.rewards=exact_match", "--grpo.max_completion_length=8"}),
              HasSubstr("parallel.context: 2, but the objective grpo needs whole sequences; set it to 1"));
  EXPECT_THAT(reason({"--distill.teacher=initial", "--distill.ratio=0.5", "--distill.targets=somewhere"}),
              HasSubstr("parallel.context: 2, but distill.targets needs whole sequences; set it to 1"));
  EXPECT_THAT(reason({"--distill.teacher=initial", "--distill.ratio=1", "--distill.on_policy=0.5",
                      "--distill.max_completion_length=8", "--data.multipack=true"}),
              HasSubstr("parallel.context: 2, but distill.on_policy needs whole sequences; set it to 1"));
}

}  // namespace
}  // namespace quench
