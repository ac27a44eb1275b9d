// Blocks of GGUF beside the codes of ggml's Python package (tests/reference/make_gguf_blocks.py).

#include "export/gguf/blocks.h"

#include <algorithm>

#include "core/json/json.h"
#include "export/gguf/row_order.h"
#include "export/gguf/super_blocks.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;

std::vector<std::uint8_t> bytes_of_hex(const std::string& hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

Tensor tensor_of(const std::vector<std::uint8_t>& bytes) {
  return Tensor::from_values<std::uint8_t>({1, static_cast<std::int64_t>(bytes.size())}, bytes);
}

Tensor floats_of(const Json& array) {
  std::vector<float> values;
  for (const Json& value : array.as_array()) values.push_back(static_cast<float>(value.as_double()));
  return Tensor::from_values<float>({1, static_cast<std::int64_t>(values.size())}, values);
}

class GgufBlocks : public ::testing::Test {
 protected:
  Json reference_ = Json::parse_file(source_dir() / "tests/reference/gguf_blocks.json");
};

TEST_F(GgufBlocks, SimpleTypesHaveTheReferenceCodes) {
  const Tensor x = floats_of(reference_.at("x"));
  for (const auto& [name, hex] : reference_.at("quantized").as_object()) {
    const auto format = std::ranges::find(block_formats(), name, &BlockFormat::name);
    ASSERT_NE(format, block_formats().end()) << name;
    const std::vector<std::uint8_t> expected = bytes_of_hex(hex.as_string());
    const Tensor blocks = quantize_blocks(x, format->type);
    ASSERT_EQ(static_cast<std::size_t>(blocks.numel()), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(blocks.data<std::uint8_t>()[i], expected[i]) << name << " byte " << i;
  }
}

TEST_F(GgufBlocks, AllTypesHaveTheReferenceValues) {
  for (const auto& [name, example] : reference_.at("dequantized").as_object()) {
    const auto format = std::ranges::find(block_formats(), name, &BlockFormat::name);
    ASSERT_NE(format, block_formats().end()) << name;
    const Tensor expected = floats_of(example.at("values"));
    const Tensor values = unpacked(
        pack_blocks(tensor_of(bytes_of_hex(example.at("blocks").as_string())), format->type, expected.size(1)));
    float largest = 0;
    for (std::int64_t i = 0; i < expected.numel(); ++i)
      largest = std::max(largest, std::abs(expected.data<float>()[i]));
    for (std::int64_t i = 0; i < expected.numel(); ++i)
      ASSERT_NEAR(values.data<float>()[i], expected.data<float>()[i], 1e-6f * largest) << name << " element " << i;
  }
}

TEST_F(GgufBlocks, SuperBlocksOfExtremesStayFinite) {
  for (const float scale : {0.0f, 1e-30f, 1.0f, 3e4f})
    for (const BlockFormat& format : block_formats()) {
      Tensor x = normal_weight({2, 256}, DType::f32);
      for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] *= scale;
      const Tensor values = unpacked(pack_blocks(quantize_blocks(x, format.type), format.type, 256));
      for (std::int64_t i = 0; i < values.numel(); ++i)
        ASSERT_TRUE(std::isfinite(values.data<float>()[i])) << format.name << " at " << scale;
    }
}

TEST(RowOrder, HeadsComeBack) {
  const Tensor rows = normal_weight({24, 3}, DType::f32);
  const Tensor mixed = interleave_heads(rows, 3);
  EXPECT_FALSE(equal_bytes(mixed, rows));
  EXPECT_TRUE(equal_bytes(separate_heads(mixed, 3), rows));
  // Row 1 of the first head is the first row of its second half.
  EXPECT_EQ(mixed.data<float>()[3], rows.data<float>()[4 * 3]);
}

}  // namespace
}  // namespace quench
