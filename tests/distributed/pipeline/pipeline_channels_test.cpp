// Groups of a pipeline stage's channels, without a world.

#include "distributed/pipeline/pipeline_channels.h"

#include <gmock/gmock.h>

namespace quench::distributed {
namespace {

using ::testing::ElementsAre;

// Tells when it ends.
std::shared_ptr<ProcessGroup> told(std::vector<std::string>& ended, const std::string& name) {
  const std::shared_ptr<ProcessGroup> group = single_group(name, {});
  return {group.get(), [group, name, &ended](ProcessGroup*) { ended.push_back(name); }};
}

// Interleaved stages of two processes: what one of them sends by is what the other receives by.
TEST(PipelineChannels, BothEndsOfAChannelEndItInTheSameOrder) {
  std::vector<std::string> first, second;
  for (auto* ended : {&first, &second}) {
    PipelineChannels channels;
    for (const char* name : {"states 0 to 1", "gradients 1 to 0", "states 1 to 0", "gradients 0 to 1"})
      channels.made.push_back(told(*ended, name));
    const bool is_first = ended == &first;
    (is_first ? channels.states_out : channels.states_in) = channels.made[0];
    (is_first ? channels.gradients_in : channels.gradients_out) = channels.made[1];
    (is_first ? channels.states_in : channels.states_out) = channels.made[2];
    (is_first ? channels.gradients_out : channels.gradients_in) = channels.made[3];
  }
  EXPECT_THAT(first, ElementsAre("gradients 0 to 1", "states 1 to 0", "gradients 1 to 0", "states 0 to 1"));
  EXPECT_EQ(second, first);
}

}  // namespace
}  // namespace quench::distributed
