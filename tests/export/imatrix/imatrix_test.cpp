// Files of importance matrices: both forms, and bad ones.

#include "export/imatrix/imatrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/system/check.h"
#include "export/formats/gguf/reader.h"
#include "tests/testing.h"

namespace quench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImatrixFile : public ::testing::Test {
 protected:
  static Imatrix matrix() {
    return {.entries = {{"blk.0.attn_q.weight", {.sums = {1, 2, 3, 4}, .counts = {10}}},
                        {"blk.0.ffn_down_exps.weight", {.sums = {1, 2, 3, 4, 5, 6}, .counts = {7, 0, 9}}}},
            .datasets = {"a.txt"},
            .chunks = 3,
            .chunk_size = 512};
  }
  [[nodiscard]] std::string refusal() const {
    try {
      (void)read_imatrix(file_);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }
  [[nodiscard]] std::string refusal(const Imatrix& bad) const {
    write_imatrix(bad, file_);
    return refusal();
  }

  // The legacy form.
  template <class T>
  static void put(std::string& bytes, const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_entry(std::string& bytes, const std::string& name, std::int32_t calls,
                        const std::vector<float>& values) {
    put(bytes, static_cast<std::int32_t>(name.size()));
    bytes += name;
    put(bytes, calls);
    put(bytes, static_cast<std::int32_t>(values.size()));
    for (const float value : values) put(bytes, value);
  }

  testing::TempDir folder_;
  std::filesystem::path file_ = folder_ / "imatrix.gguf";
};

TEST_F(ImatrixFile, ComesBackAsWritten) {
  write_imatrix(matrix(), file_);
  const Imatrix read = read_imatrix(file_);
  ASSERT_EQ(read.entries.size(), 2u);
  for (const auto& [name, entry] : matrix().entries) {
    EXPECT_EQ(read.entries.at(name).sums, entry.sums);
    EXPECT_EQ(read.entries.at(name).counts, entry.counts);
  }
  EXPECT_EQ(read.entries.at("blk.0.ffn_down_exps.weight").columns(), 2);
  EXPECT_THAT(read.datasets, ElementsAre("a.txt"));
  EXPECT_EQ(read.chunks, 3);
  EXPECT_EQ(read.chunk_size, 512);
}

TEST_F(ImatrixFile, HasTheNamesShapesAndKeysOfLlamaCpp) {
  write_imatrix(matrix(), file_);
  const GgufHead head = read_gguf_head(file_);
  EXPECT_EQ(head.metadata.at("general.type"), Json("imatrix"));
  EXPECT_EQ(head.metadata.at("imatrix.chunk_count"), Json(3));
  EXPECT_EQ(head.metadata.at("imatrix.chunk_size"), Json(512));
  std::map<std::string, Shape> shapes;
  for (const GgufEntry& entry : head.tensors) shapes[entry.name] = entry.shape;
  EXPECT_EQ(shapes.at("blk.0.attn_q.weight.in_sum2"), Shape({1, 4}));
  EXPECT_EQ(shapes.at("blk.0.attn_q.weight.counts"), Shape({1, 1}));
  EXPECT_EQ(shapes.at("blk.0.ffn_down_exps.weight.in_sum2"), Shape({3, 2}));
  EXPECT_EQ(shapes.at("blk.0.ffn_down_exps.weight.counts"), Shape({3, 1}));
}

TEST_F(ImatrixFile, LegacyFormIsReadWithAndWithoutItsEnd) {
  std::string bytes;
  put(bytes, std::int32_t{2});
  put_entry(bytes, "blk.0.attn_q.weight", 4, {4, 8});
  put_entry(bytes, "blk.0.ffn_up_exps.weight", 2, {2, 4, 6, 8});
  testing::write_file(file_, bytes);
  EXPECT_THAT(read_imatrix(file_).datasets, ElementsAre());
  put(bytes, std::int32_t{5});
  put(bytes, std::int32_t{4});
  bytes += "data";
  testing::write_file(file_, bytes);
  const Imatrix read = read_imatrix(file_);
  EXPECT_EQ(read.chunks, 5);
  EXPECT_THAT(read.datasets, ElementsAre("data"));
  EXPECT_THAT(read.entries.at("blk.0.attn_q.weight").sums, ElementsAre(4, 8));
  EXPECT_THAT(read.entries.at("blk.0.attn_q.weight").counts, ElementsAre(4));
  // Every prefix is an error that names the file, except where a part ends.
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    testing::write_file(file_, bytes.substr(0, size));
    const std::string text = refusal();
    if (text != "nothing was refused") {
      EXPECT_THAT(text, HasSubstr(file_.string())) << size;
    } else {
      EXPECT_TRUE(size == bytes.size() - 12 || size == bytes.size() - 8) << size << ": whole entries, or their count";
    }
  }
}

TEST_F(ImatrixFile, BadValuesAreNamed) {
  const auto with = [](auto change) {
    Imatrix bad = matrix();
    change(bad);
    return bad;
  };
  const std::string q = "blk.0.attn_q.weight";
  EXPECT_THAT(refusal(with([&](Imatrix& m) { m.entries.at(q).sums[2] = NAN; })),
              HasSubstr("the sum of blk.0.attn_q.weight at 2 is nan, expected finite numbers of at least 0"));
  EXPECT_THAT(refusal(with([&](Imatrix& m) { m.entries.at(q).sums[1] = INFINITY; })), HasSubstr("at 1 is inf"));
  EXPECT_THAT(refusal(with([&](Imatrix& m) { m.entries.at(q).sums[0] = -1; })), HasSubstr("at 0 is -1"));
  EXPECT_THAT(refusal(with([&](Imatrix& m) { m.entries.at(q).counts[0] = -1; })), HasSubstr("the count of"));
  EXPECT_THAT(refusal(with([&](Imatrix& m) { m.entries.at(q).counts[0] = 0; })),
              HasSubstr("blk.0.attn_q.weight was computed on no data (count 0)"));
  EXPECT_THAT(refusal(with([&](Imatrix& m) { m.chunks = 0; })), HasSubstr("imatrix.chunk_count is 0"));
}

TEST_F(ImatrixFile, LegacyFormWithoutChunksIsRefused) {
  std::string bytes;
  put(bytes, std::int32_t{1});
  put_entry(bytes, "blk.0.attn_q.weight", 0, {4, 8});
  testing::write_file(file_, bytes);
  EXPECT_THAT(refusal(), HasSubstr("blk.0.attn_q.weight was computed on 0 chunks"));
}

TEST_F(ImatrixFile, OtherFilesAreRefused) {
  EXPECT_THAT(refusal(), HasSubstr("does not exist"));
  testing::write_file(file_, std::string("\0\0\0\0", 4));
  EXPECT_THAT(refusal(), HasSubstr("it begins with 0 entries"));
  std::string huge;
  put(huge, std::int32_t{1});
  put(huge, std::int32_t{1 << 30});
  testing::write_file(file_, huge);
  EXPECT_THAT(refusal(), HasSubstr("more than the file holds"));
}

}  // namespace
}  // namespace quench
