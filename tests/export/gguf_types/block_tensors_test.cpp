// Blocks of GGUF next to the codes of ggml's Python package (tests/reference/make_gguf_blocks.py).

#include "core/gguf_types/block_tensors.h"

#include <algorithm>
#include <cstring>

#include "core/gguf_types/bit_layouts.h"
#include "core/json/json.h"
#include "core/ops/quantize/quantize_gguf.h"
#include "export/formats/gguf/row_order.h"
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
    const Tensor blocks = quantize_blocks(x, format->type, "w");
    ASSERT_EQ(static_cast<std::size_t>(blocks.numel()), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(blocks.data<std::uint8_t>()[i], expected[i]) << name << " byte " << i;
  }
}

std::string hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 0xCBF29CE484222325;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  for (std::size_t i = 0; i < values.size() * sizeof(float); ++i) hash = (hash ^ bytes[i]) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

TEST_F(GgufBlocks, ValuesOfEveryTypeAreTheReferenceBitForBit) {
  const auto& examples = reference_.at("dequantized").as_object();
  for (const BlockFormat& format : block_formats()) {
    if (format.type == BlockType::q8_k) continue;  // the package does not read it
    const Json& example = reference_.at("dequantized").at(std::string(format.name));
    const std::vector<std::uint8_t> blocks = bytes_of_hex(example.at("blocks").as_string());
    const auto& hashes = example.at("hashes").as_array();
    ASSERT_EQ(blocks.size(), hashes.size() * static_cast<std::size_t>(format.bytes));
    std::vector<float> values(static_cast<std::size_t>(format.elements));
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      dequantize_block(format, blocks.data() + i * static_cast<std::size_t>(format.bytes), values.data());
      EXPECT_EQ(hash_of(values), hashes[i].as_string()) << format.name << " block " << i;
    }
  }
  EXPECT_EQ(examples.size() + 1, block_formats().size());
}

TEST_F(GgufBlocks, PackedMatricesHoldTheValuesOfEveryType) {
  for (const BlockFormat& format : block_formats()) {
    if (format.type == BlockType::q8_k) continue;
    const std::vector<std::uint8_t> blocks =
        bytes_of_hex(reference_.at("dequantized").at(std::string(format.name)).at("blocks").as_string());
    const std::int64_t columns = static_cast<std::int64_t>(blocks.size()) / format.bytes * format.elements;
    const Tensor values = unpacked(pack_blocks(tensor_of(blocks), format.type, columns, "w"));
    std::vector<float> expected(static_cast<std::size_t>(format.elements));
    for (std::int64_t b = 0; b < columns / format.elements; ++b) {
      dequantize_block(format, blocks.data() + b * format.bytes, expected.data());
      float largest = 0;
      for (const float value : expected) largest = std::max(largest, std::abs(value));
      for (std::int64_t i = 0; i < format.elements; ++i)
        ASSERT_NEAR(values.data<float>()[b * format.elements + i], expected[static_cast<std::size_t>(i)],
                    1e-6f * largest)
            << format.name << " block " << b << " element " << i;
    }
  }
}

TEST(GgufTypes, ActivationBlocksHaveOneWideScale) {
  std::vector<std::uint8_t> block(292);
  const float scale = 0.3f;
  std::memcpy(block.data(), &scale, sizeof scale);
  for (std::size_t i = 0; i < 256; ++i) block[4 + i] = static_cast<std::uint8_t>(i);
  float values[256];
  dequantize_block(block_format(BlockType::q8_k), block.data(), values);
  for (int i = 0; i < 256; ++i) ASSERT_EQ(values[i], 0.3f * static_cast<float>(static_cast<std::int8_t>(i)));
}

TEST(GgufTypes, EveryTypeStaysPackedInItsOwnWidth) {
  for (const BlockFormat& format : block_formats()) {
    const std::int64_t columns = 2 * format.elements;
    const Tensor blocks = Tensor::zeros({1, 2 * format.bytes}, DType::u8);
    const PackedMatrix packed = pack_blocks(blocks, format.type, columns, "w");
    EXPECT_EQ(packed.describe(), fmt::format("{}[1, {}] by groups of {} on cpu", to_string(format.packed.codes),
                                             columns, format.packed.group))
        << format.name;
    EXPECT_LE(format.elements / format.packed.group, kMostBlockGroups);
    EXPECT_LE(format.elements, kMostBlockElements);
  }
}

TEST_F(GgufBlocks, SuperBlocksOfExtremesStayFinite) {
  for (const float scale : {0.0f, 1e-30f, 1.0f, 3e4f})
    for (const BlockFormat& format : block_formats()) {
      if (format.quantize == nullptr) continue;
      Tensor x = normal_weight({2, 256}, DType::f32);
      for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] *= scale;
      const Tensor values = unpacked(pack_blocks(quantize_blocks(x, format.type, "w"), format.type, 256, "w"));
      for (std::int64_t i = 0; i < values.numel(); ++i)
        ASSERT_TRUE(std::isfinite(values.data<float>()[i])) << format.name << " at " << scale;
    }
}

// Blocks of one super block whose groups hold these values, `fill(group, element)`.
template <class Fill>
Tensor groups_of(int size, const Fill& fill) {
  Tensor x = Tensor::empty({1, kSuperBlock}, DType::f32);
  for (int i = 0; i < kSuperBlock; ++i) x.data<float>()[i] = fill(i / size, i % size);
  return x;
}

// Largest error of a group's values in units of its largest step: of the block that stores them.
void expect_within_half_a_step(const Tensor& x, BlockType type, int size, float steps, const std::string& what) {
  const Tensor values = unpacked(pack_blocks(quantize_blocks(x, type, "w"), type, kSuperBlock, "w"));
  for (int group = 0; group < kSuperBlock / size; ++group) {
    const float* in = x.data<float>() + group * size;
    const float* out = values.data<float>() + group * size;
    const auto [low, high] = std::minmax_element(in, in + size);
    const float range = std::max(*high, 0.0f) - std::min(*low, 0.0f);
    for (int i = 0; i < size; ++i)
      ASSERT_LE(std::abs(out[i] - in[i]), range / steps / 2 * 1.02f) << what << " group " << group << " element " << i;
  }
}

struct SuperBlockType {
  BlockType type;
  int group;
  float steps;  // code steps of a group over the range of its values and 0
};
constexpr SuperBlockType kSuperBlocks[] = {{BlockType::q4_k, 32, 15}, {BlockType::q6_k, 16, 31}};

TEST(GgufSuperBlocks, ConstantGroupsKeepTheirValue) {
  for (const auto& [type, size, steps] : kSuperBlocks) {
    const std::string name(block_format(type).name);
    for (const float value : {0.0f, 1.0f, 0.02f, -1.0f, -0.02f, 1e-4f, -1e-4f, 300.0f, -300.0f}) {
      expect_within_half_a_step(groups_of(size, [&](int, int) { return value; }), type, size, steps,
                                fmt::format("{} of {}", name, value));
      // One element apart by a last bit: all have the same code.
      expect_within_half_a_step(groups_of(size, [&](int, int i) { return i == 3 ? value * 1.0000001f : value; }), type,
                                size, steps, fmt::format("{} of nearly {}", name, value));
      expect_within_half_a_step(groups_of(size, [&](int group, int) { return group % 2 == 0 ? value : 0.6f * value; }),
                                type, size, steps, fmt::format("{} of {} and less", name, value));
    }
  }
}

TEST(GgufSuperBlocks, AGroupBesideALargerOneIsNotRoundedToZero) {
  for (const auto& [type, size, steps] : kSuperBlocks)
    for (const float value : {1.0f, -1.0f}) {
      // The least step that the block can store for the small group is a 63rd (128th) of the large one's.
      const float units = type == BlockType::q4_k ? 63 : 127;
      const float large = value * units * 2.2f;
      const Tensor x = groups_of(size, [&](int group, int) { return group == 0 ? large : value; });
      const Tensor values = unpacked(pack_blocks(quantize_blocks(x, type, "w"), type, kSuperBlock, "w"));
      for (int i = size; i < kSuperBlock; ++i)
        ASSERT_NEAR(values.data<float>()[i], value, 2.2f / 2) << block_format(type).name << " of " << value;
      if (value > 0 || type == BlockType::q6_k) {
        for (int i = size; i < kSuperBlock; ++i)
          ASSERT_NEAR(values.data<float>()[i], value, 0.1f) << block_format(type).name << " of " << value;
      }
    }
}

TEST(GgufSuperBlocks, AnOutlierLeavesTheOtherGroupsAlone) {
  for (const auto& [type, size, steps] : kSuperBlocks)
    for (const float outlier : {1.0f, -1.0f})
      expect_within_half_a_step(
          groups_of(size, [&](int group, int i) { return group == 2 && i == 5 ? outlier : 0.25f * outlier; }), type,
          size, steps, fmt::format("{} with {}", block_format(type).name, outlier));
}

// Round to nearest over the range of each group, which the search must not fall short of.
TEST(GgufSuperBlocks, RandomGroupsAreNoWorseThanRoundToNearest) {
  for (const auto& [type, size, steps] : kSuperBlocks)
    for (const float shift : {0.0f, 0.2f, -0.2f}) {
      double error = 0, reference = 0;
      const Tensor noise = normal_weight({64, kSuperBlock}, DType::f32);
      for (std::int64_t i = 0; i < noise.numel(); ++i) noise.data<float>()[i] += shift;
      const Tensor values = unpacked(pack_blocks(quantize_blocks(noise, type, "w"), type, kSuperBlock, "w"));
      for (std::int64_t first = 0; first < noise.numel(); first += size) {
        const float* in = noise.data<float>() + first;
        const auto [low, high] = std::minmax_element(in, in + size);
        const bool offset = type == BlockType::q4_k;
        const float zero = offset ? std::min(*low, 0.0f) : 0.0f;
        const float step = offset ? (*high - zero) / steps : std::max(-*low, *high) / steps;
        for (int i = 0; i < size; ++i) {
          const double rounded = std::nearbyint((in[i] - zero) / step) * step + zero;
          reference += std::pow(rounded - in[i], 2);
          error += std::pow(values.data<float>()[first + i] - in[i], 2);
        }
      }
      EXPECT_LT(error, reference * 1.05) << block_format(type).name << " shifted by " << shift;
    }
}

template <class Action>
std::string refused(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(GgufScales, ValuesForWhichScalesOverflowAreNamed) {
  const Tensor x = Tensor::zeros({3, 2 * kSuperBlock}, DType::f32);
  const std::int64_t column = kSuperBlock + 33;
  for (std::int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 0.01f * static_cast<float>(i % 7 - 3);
  x.data<float>()[2 * x.size(1) + column] = -4e9f;
  for (const BlockFormat& format : block_formats()) {
    if (format.quantize == nullptr) continue;
    const std::string message = refused([&] { (void)quantize_blocks(x, format.type, "model.w"); });
    if (format.type == BlockType::mxfp4) {
      EXPECT_EQ(message, "nothing was refused");
      continue;
    }
    EXPECT_THAT(message, ::testing::HasSubstr(fmt::format("model.w holds {} at [2, {}]", -4e9f, column)))
        << format.name;
    EXPECT_THAT(message, ::testing::HasSubstr(fmt::format("the scale of a {} block", format.name)));
    EXPECT_THAT(message, ::testing::HasSubstr("exclude the layer"));
  }
}

TEST(GgufScales, BlocksOfFilesWithoutAFiniteScaleAreNamed) {
  const Tensor blocks = quantize_blocks(normal_weight({2, 64}, DType::f32), BlockType::q8_0, "w");
  const std::uint16_t infinity = 0x7C00;
  std::memcpy(blocks.data<std::uint8_t>() + 3 * block_format(BlockType::q8_0).bytes, &infinity, sizeof infinity);
  EXPECT_THAT(refused([&] { (void)pack_blocks(blocks, BlockType::q8_0, 64, "m.gguf: w"); }),
              ::testing::HasSubstr("m.gguf: w: the Q8_0 block at [1, 32] has the scale inf; download the model again"));
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
