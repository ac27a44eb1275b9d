#include "train/run/start_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace quench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StartTimes, CountsFromTheCreationOfTheProcess) {
  StartTimes times;
  const double program = times.seconds();
  EXPECT_GE(program, 0);
  EXPECT_LT(program, 600);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  EXPECT_EQ(times.after("weights", 7), 7);
  times.mark("run folder");
  EXPECT_GE(times.seconds(), program + 0.06);
  const std::string text = times.to_text(3);
  EXPECT_THAT(text, HasSubstr("to the end of step 3:"));
  EXPECT_THAT(text, HasSubstr("weights 0.0"));
  EXPECT_THAT(text, Not(HasSubstr("run folder"))) << "short phases are summed";
  EXPECT_THAT(text, HasSubstr("other 0.0"));
}

}  // namespace
}  // namespace quench
