#include "core/system/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/system/silent_program.h"
#include "tests/distributed/child.h"

namespace quench {
namespace {

using ::testing::AllOf;
using testing::Child;
using testing::ChildResult;
using ::testing::HasSubstr;

// Both streams of the program, which reads a file with an unknown field.
ChildResult run_silent_program(const std::vector<std::string>& more, const std::vector<std::string>& variables) {
  const testing::TempDir folder;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":1}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  testing::write_file(folder / "odd.safetensors", bytes + header + '\0');
  std::vector<std::string> command = {testing::silent_program_path(), (folder / "odd.safetensors").string()};
  command.insert(command.end(), more.begin(), more.end());
  return Child(std::move(command), variables).wait();
}

TEST(Log, LibrariesPrintNothingBeforeInitLogging) {
  for (const char* level : {"QUENCH_LOG_LEVEL=trace", "QUENCH_LOG_LEVEL=warn"}) {
    const ChildResult silent = run_silent_program({}, {level});
    EXPECT_EQ(silent.status, 0) << "the file raises no warning";
    EXPECT_EQ(silent.output, "");
  }
  EXPECT_THAT(run_silent_program({"logging"}, {"QUENCH_LOG_LEVEL=warn"}).output,
              AllOf(HasSubstr("warning: "), HasSubstr("\"strides\""), HasSubstr("error: 1 tensors")));
}

}  // namespace
}  // namespace quench
