#include "train/config/data_files.h"

#include <gtest/gtest.h>

#include "core/system/check.h"
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
  const auto expanded = expand_sources({{here + "a*.bin", 3.0}});
  ASSERT_EQ(expanded.size(), 1u);
  EXPECT_EQ(expanded[0].files.size(), 2u);
  EXPECT_EQ(expanded[0].weight, 3.0);
  EXPECT_THROW((void)expand_sources({{here + "none", 1.0}}), Error);
}

}  // namespace
}  // namespace quench
