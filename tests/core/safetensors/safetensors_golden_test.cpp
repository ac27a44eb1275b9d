// Files written by the format's reference implementation.

#include <gtest/gtest.h>

#include "core/safetensors/safetensors.h"
#include "tests/testing.h"

namespace quench {
namespace {

std::vector<std::filesystem::path> golden_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(testing::golden_dir()))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  return files;
}

// The tensors, held in memory, with items that point to them.
struct Contents {
  std::vector<std::vector<std::byte>> data;
  std::vector<SafetensorsItem> items;
};

Contents read_all(const SafetensorsReader& reader) {
  Contents contents;
  for (const SafetensorsEntry& entry : reader.header().entries) {
    std::vector<std::byte>& bytes = contents.data.emplace_back(entry.nbytes());
    reader.read(entry, bytes);
    contents.items.push_back({.name = entry.name, .dtype = entry.dtype.value(), .shape = entry.shape, .data = bytes});
  }
  return contents;
}

TEST(SafetensorsGolden, EveryFileLoads) {
  const auto files = golden_files();
  ASSERT_GE(files.size(), 20u);
  for (const auto& path : files) {
    const SafetensorsReader reader(path);
    EXPECT_FALSE(reader.header().entries.empty()) << path;
    EXPECT_TRUE(reader.header().warnings.empty()) << path;
  }
}

TEST(SafetensorsGolden, KnownTensorsHaveTheirDtypesAndShapes) {
  const SafetensorsReader casts(testing::golden_dir() / "float8_cast.safetensors");
  EXPECT_EQ(casts.at("x_bf16").dtype, DType::bf16);
  EXPECT_EQ(casts.at("x_bf16").shape, Shape({48, 96}));
  EXPECT_EQ(casts.at("q_f32_e4m3_tensor").dtype, DType::f8_e4m3);
  EXPECT_EQ(casts.at("q_f32_e5m2_row").dtype, DType::f8_e5m2);
  EXPECT_EQ(casts.at("scale_f32_e4m3_tensor").shape, Shape());
  EXPECT_EQ(casts.at("scale_f32_e4m3_row").shape, Shape({48, 1}));
}

TEST(SafetensorsGolden, WritingTheSameTensorsGivesTheSameBytes) {
  const testing::TempDir folder;
  int compared = 0;
  for (const auto& path : golden_files()) {
    const SafetensorsReader reader(path);
    // The reference implementation writes an empty table where it was given one; it is never read.
    if (testing::read_file(path).substr(8, 18) == R"({"__metadata__":{})") continue;
    ++compared;
    write_safetensors(folder / "copy", read_all(reader).items, reader.header().metadata);
    EXPECT_EQ(testing::read_file(folder / "copy"), testing::read_file(path)) << path;
  }
  EXPECT_GE(compared, 15);
}

}  // namespace
}  // namespace quench
