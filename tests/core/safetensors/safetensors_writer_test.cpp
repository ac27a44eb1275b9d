#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_limits.h"
#include "tests/core/safetensors/safetensors_file.h"
#include "tests/core/system/file_size_limit.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using testing::files_in;
using ::testing::HasSubstr;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

SafetensorsItem item(std::string name, DType dtype, Shape shape, std::string_view data) {
  return {.name = std::move(name), .dtype = dtype, .shape = shape, .data = as_bytes(data)};
}

std::string read_tensor(const SafetensorsReader& reader, std::string_view name) {
  const SafetensorsEntry& entry = reader.at(name);
  std::string bytes(entry.nbytes(), '\0');
  reader.read(entry, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(SafetensorsWriter, WritesTheExactBytesOfTheFormat) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  write_safetensors(
      path, {item("b", DType::u8, {3}, "xyz"), item("a", DType::u8, {}, "s"), item("w", DType::bf16, {1, 2}, "1234")});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
      R"("a":{"dtype":"U8","shape":[],"data_offsets":[4,5]},"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})";
  std::string padded = header;
  padded.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(testing::read_file(path), testing::safetensors_file(padded) + "1234sxyz");
  EXPECT_THAT(files_in(folder.path()), ElementsAre("m.safetensors"));
}

TEST(SafetensorsWriter, WiderElementsComeFirst) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  const std::string bytes(64, 'x');
  std::vector<SafetensorsItem> items;
  for (const SafetensorsDType& row : safetensors_dtypes())
    if (row.dtype)
      items.push_back(item(std::string(row.name), *row.dtype, {8}, std::string_view(bytes).substr(0, row.bits)));
  write_safetensors(path, items, {});
  const SafetensorsReader reader(path);
  ASSERT_EQ(reader.header().entries.size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) {
    const SafetensorsEntry& entry = reader.header().entries[i];
    EXPECT_EQ(entry.dtype_name, items[items.size() - 1 - i].name);
    const auto width = static_cast<std::uint64_t>(std::max(bit_width(*entry.dtype), 8) / 8);
    EXPECT_EQ((reader.header().data_start + entry.begin) % width, 0u) << entry.name;
  }
  EXPECT_TRUE(reader.header().metadata.empty());
}

TEST(SafetensorsWriter, RoundTripsAwkwardNamesMetadataAndShapes) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  const std::map<std::string, std::string> metadata{{"quote\"", "line\nbreak"}, {"", "\xC3\xA9"}};
  write_safetensors(path,
                    {item("\"\\/\xE2\x82\xAC", DType::f4_e2m1, {2, 3}, "abc"), item("empty", DType::f32, {4, 0, 2}, ""),
                     item("scalar", DType::f64, {}, "12345678")},
                    metadata);
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.header().metadata, metadata);
  EXPECT_EQ(read_tensor(reader, "\"\\/\xE2\x82\xAC"), "abc");
  EXPECT_EQ(reader.at("empty").shape, Shape({4, 0, 2}));
  EXPECT_EQ(read_tensor(reader, "scalar"), "12345678");
  EXPECT_EQ(reader.header().data_start % 8, 0u);
}

TEST(SafetensorsWriter, NoTensorsMakeAValidFile) {
  const testing::TempDir folder;
  write_safetensors(folder / "m.safetensors", {}, {});
  EXPECT_EQ(testing::read_file(folder / "m.safetensors"), testing::safetensors_file("{}      "));
  EXPECT_TRUE(SafetensorsReader(folder / "m.safetensors").header().entries.empty());
}

TEST(SafetensorsWriter, ProducedTensorsAreAskedForOnceAndInFileOrder) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  std::string order;
  const auto produced = [&](std::string name, DType dtype, Shape shape, std::size_t bytes) {
    return SafetensorsItem{.name = name, .dtype = dtype, .shape = shape, .produce = [&order, name, bytes] {
                             order += name;
                             return std::vector<std::byte>(bytes, std::byte(name[0]));
                           }};
  };
  write_safetensors(
      path, {produced("b", DType::u8, {2}, 2), item("c", DType::u8, {1}, "c"), produced("a", DType::f32, {1}, 4)});
  EXPECT_EQ(order, "ab");
  EXPECT_EQ(read_tensor(SafetensorsReader(path), "b"), "bb");
  EXPECT_THROW(write_safetensors(path, {produced("b", DType::u8, {2}, 3)}), Error);
  EXPECT_EQ(read_tensor(SafetensorsReader(path), "a"), "aaaa");
  EXPECT_THAT(files_in(folder.path()), ElementsAre("m.safetensors"));
}

TEST(SafetensorsWriter, RefusesWhatNoReaderWouldAccept) {
  const testing::TempDir folder;
  const auto refused = [&](std::vector<SafetensorsItem> items,
                           const std::map<std::string, std::string>& metadata = {}) {
    try {
      write_safetensors(folder / "m.safetensors", std::move(items), metadata);
      return std::string("accepted");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(refused({item("a", DType::u8, {1}, "1"), item("a", DType::f32, {1}, "1234")}), HasSubstr("two tensors"));
  EXPECT_THAT(refused({item("", DType::u8, {1}, "1")}), HasSubstr("is empty"));
  EXPECT_THAT(refused({item("__metadata__", DType::u8, {1}, "1")}), HasSubstr("reserved"));
  EXPECT_THAT(refused({item("a\nb", DType::u8, {1}, "1")}), HasSubstr("control"));
  EXPECT_THAT(refused({item("\xFF", DType::u8, {1}, "1")}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({item(std::string(513, 'n'), DType::u8, {1}, "1")}), HasSubstr("512"));
  EXPECT_THAT(refused({item("a", DType::f32, {2}, "1234")}), HasSubstr("needs 8 bytes, got 4"));
  EXPECT_THAT(refused({item("a", DType::f4_e2m1, {3}, "12")}), HasSubstr("whole bytes"));
  EXPECT_THAT(refused({item("a", DType::i4, {2}, "1")}), HasSubstr("no dtype for i4"));
  EXPECT_THAT(refused({item("a", DType::u8, {-1}, "")}), HasSubstr("[-1]"));
  EXPECT_THAT(refused({item("a", DType::u8, {std::int64_t{1} << 40, std::int64_t{1} << 40}, "")}),
              HasSubstr("overflows"));
  EXPECT_THAT(refused({item("a", DType::u8, {std::int64_t{1} << 48, 0}, "")}), HasSubstr("shape"));
  EXPECT_THAT(refused({}, {{"k", "\xFF"}}), HasSubstr("metadata"));
  EXPECT_THAT(refused({}, {{"k", std::string(kSafetensorsMaxHeaderBytes, 'v')}}), HasSubstr("header"));
  EXPECT_THAT(files_in(folder.path()), ::testing::IsEmpty());
}

TEST(SafetensorsWriter, AFileThatDoesNotFitLeavesTheOldOneIntact) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  write_safetensors(path, {item("old", DType::u8, {3}, "old")});
  const std::string before = testing::read_file(path);
  const std::string large(1 << 20, 'x');
  {
    const testing::FileSizeLimit limit(64 << 10);
    try {
      write_safetensors(path, {item("new", DType::u8, {1 << 20}, large)});
      ADD_FAILURE() << "a file beyond the limit was written";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::no_space);
      EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
    }
  }
  EXPECT_EQ(testing::read_file(path), before);
  EXPECT_THAT(files_in(folder.path()), ElementsAre("m.safetensors"));
}

TEST(SafetensorsWriter, AnOpenReaderKeepsTheOldFile) {
  const testing::TempDir folder;
  const auto path = folder / "m.safetensors";
  write_safetensors(path, {item("t", DType::u8, {3}, "old")});
  const SafetensorsReader reader(path);
  write_safetensors(path, {item("t", DType::u8, {3}, "new")});
  EXPECT_EQ(read_tensor(reader, "t"), "old");
  EXPECT_EQ(read_tensor(SafetensorsReader(path), "t"), "new");
}

TEST(SafetensorsWriter, AFolderThatDoesNotExistIsNamed) {
  const testing::TempDir folder;
  try {
    write_safetensors(folder / "none" / "m.safetensors", {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::not_found);
    EXPECT_THAT(error.what(), HasSubstr("none"));
  }
}

}  // namespace
}  // namespace quench
