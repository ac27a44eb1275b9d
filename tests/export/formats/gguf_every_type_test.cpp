// GGUF files whose matrices are blocks of each type, and scales of whole matrices.

#include <cmath>

#include "core/number/random.h"
#include "core/ops/quantize/quantize_gguf.h"
#include "core/system/file.h"
#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/reader.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

constexpr std::int64_t kRows = 3, kWidth = 256;
constexpr const char* kMatrix = "model.layers.0.self_attn.v_proj.weight";
constexpr const char* kLlamaConfig = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16,
    "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "tie_word_embeddings": true})";

class GgufFiles : public ::testing::Test {
 protected:
  // A file of attn_v in `blocks` with, if there are any, its scales of one kind.
  std::unique_ptr<StoredWeights> file_of(const BlockFormat& format, const std::vector<std::uint8_t>& blocks,
                                         const std::string& scale_name = {}, const std::vector<float>& scales = {}) {
    const std::uint64_t bytes = blocks.size();
    std::vector<GgufTensor> tensors = {
        {.name = "blk.0.attn_v.weight", .dimensions = {kWidth, kRows}, .type = format.ggml_type, .bytes = bytes}};
    std::string data(blocks.begin(), blocks.end());
    data.resize((data.size() + 31) / 32 * 32);
    if (!scales.empty()) {
      tensors.push_back({.name = scale_name, .dimensions = {scales.size()}, .bytes = scales.size() * sizeof(float)});
      data.append(reinterpret_cast<const char*>(scales.data()), scales.size() * sizeof(float));
      data.resize((data.size() + 31) / 32 * 32);
    }
    write_file_atomically(folder_ / "m.gguf",
                          gguf_head({{"general.architecture", std::string("llama")}}, tensors) + data);
    return open_gguf(folder_ / "m.gguf", Json::parse(kLlamaConfig));
  }

  testing::TempDir folder_;
};

// Blocks of normal values where the type is written, else of small bytes, whose scales are finite.
std::vector<std::uint8_t> some_blocks(const BlockFormat& format) {
  const std::int64_t count = kRows * kWidth / format.elements;
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(count * format.bytes));
  if (format.quantize != nullptr) {
    const Tensor made = quantize_blocks(testing::normal_weight({kRows, kWidth}, DType::f32), format.type, "w");
    std::copy_n(made.data<std::uint8_t>(), made.numel(), blocks.begin());
  } else {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::uint8_t>(i * 37 % 48);
  }
  return blocks;
}

std::vector<float> values_of(const BlockFormat& format, const std::vector<std::uint8_t>& blocks) {
  std::vector<float> values(static_cast<std::size_t>(kRows * kWidth));
  for (std::int64_t i = 0; i < kRows * kWidth / format.elements; ++i)
    dequantize_block(format, blocks.data() + i * format.bytes, values.data() + i * format.elements);
  return values;
}

void expect_values(const PackedMatrix& packed, const std::vector<float>& expected, float factor,
                   std::string_view what) {
  const Tensor values = testing::unpacked(packed);
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value * factor));
  ASSERT_GT(largest, 0) << what;
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(values.data<float>()[i], expected[i] * factor, 1e-6f * largest) << what << " element " << i;
}

TEST_F(GgufFiles, EveryBlockTypeIsReadPacked) {
  for (const BlockFormat& format : block_formats()) {
    const std::vector<std::uint8_t> blocks = some_blocks(format);
    const auto weights = file_of(format, blocks);
    const auto stored = weights->find(kMatrix);
    ASSERT_TRUE(stored.has_value()) << format.name;
    EXPECT_TRUE(stored->packed) << format.name;
    expect_values(weights->read_packed(kMatrix), values_of(format, blocks), 1.0f, format.name);
  }
}

TEST_F(GgufFiles, AScaleOfTheMatrixIsAppliedAndIsNoTensorOfTheModel) {
  for (const BlockType type : {BlockType::nvfp4, BlockType::tq2_0, BlockType::q4_k}) {
    const BlockFormat& format = block_format(type);
    const std::vector<std::uint8_t> blocks = some_blocks(format);
    const auto weights = file_of(format, blocks, "blk.0.attn_v.scale", {0.3f});
    EXPECT_EQ(weights->names(), std::vector<std::string>{kMatrix});
    expect_values(weights->read_packed(kMatrix), values_of(format, blocks), 0.3f, format.name);
  }
}

TEST_F(GgufFiles, AScaleOfInputsIsLeftOut) {
  const BlockFormat& format = block_format(BlockType::nvfp4);
  const std::vector<std::uint8_t> blocks = some_blocks(format);
  const auto weights = file_of(format, blocks, "blk.0.attn_v.input_scale", {0.3f});
  EXPECT_EQ(weights->names(), std::vector<std::string>{kMatrix});
  expect_values(weights->read_packed(kMatrix), values_of(format, blocks), 1.0f, format.name);
}

TEST_F(GgufFiles, ScalesThatFitNoMatrixAreRefused) {
  const BlockFormat& format = block_format(BlockType::nvfp4);
  const auto refusal = [&](const std::vector<float>& scales) -> std::string {
    try {
      (void)file_of(format, some_blocks(format), "blk.0.attn_v.scale", scales);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refusal({0.3f, 0.2f}), ::testing::HasSubstr("blk.0.attn_v.scale has shape [2] and type F32; one scale"));
  EXPECT_THAT(refusal({INFINITY}), ::testing::HasSubstr("blk.0.attn_v.scale is inf"));
}

}  // namespace
}  // namespace quench
