#include "train/config/data_files.h"

#include <gtest/gtest.h>

#include "tests/testing.h"

namespace quench {
namespace {

TEST(DataFiles, PatternsExpandInByteOrder) {
  const testing::TempDir folder;
  for (const char* name : {"b.bin", "B.bin", "a10.bin", "a2.bin", "x[1].bin"}) testing::write_file(folder / name, "x");
  const std::string here = folder.path().string() + "/";
  EXPECT_EQ(expand_pattern(here + "*.bin"), (std::vector<std::string>{here + "B.bin", here + "a10.bin", here + "a2.bin",
                                                                      here + "b.bin", here + "x[1].bin"}));
  EXPECT_EQ(expand_pattern(here + "{b,a2}.bin"), (std::vector<std::string>{here + "a2.bin", here + "b.bin"}));
  EXPECT_EQ(expand_pattern(here + "x[1].bin"), std::vector<std::string>{here + "x[1].bin"});
  EXPECT_TRUE(expand_pattern(here + "c*").empty());
}

}  // namespace
}  // namespace quench
