// Folders of quant_method "mxfp4", as gpt-oss is published: experts as e2m1 codes in blocks of 32 with e8m0 scales.

#include "core/number/e8m0.h"
#include "core/number/float4.h"
#include "core/safetensors/safetensors.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kExperts = 3, kOut = 70, kGroups = 2;
constexpr std::string_view kDownProj = "model.layers.0.mlp.experts.down_proj";

std::span<const std::byte> raw(const Tensor& t) {
  return {static_cast<const std::byte*>(t.raw_data()), t.nbytes()};
}

struct Mxfp4Folder {
  TempDir folder;
  Tensor blocks = Tensor::empty({kExperts, kOut, kGroups, 16}, DType::u8);
  Tensor scales = Tensor::empty({kExperts, kOut, kGroups}, DType::u8);
  Tensor dense = normal_weight({8, 64}, DType::bf16, 5);
  Json config = config_of(Json::parse(R"({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})"));

  explicit Mxfp4Folder(Shape of_scales = {kExperts, kOut, kGroups}, int nan_at = -1) {
    for (std::int64_t i = 0; i < blocks.numel(); ++i)
      blocks.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
    for (std::int64_t i = 0; i < scales.numel(); ++i)
      scales.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(i == nan_at ? 255 : 110 + i % 30);
    const std::string name(kDownProj);
    write_safetensors(folder / "model.safetensors", {{name + "_blocks", DType::u8, blocks.shape(), raw(blocks)},
                                                     {name + "_scales", DType::u8, of_scales,
                                                      raw(scales).first(static_cast<std::size_t>(of_scales.numel()))},
                                                     {"lm_head.weight", DType::bf16, dense.shape(), raw(dense)}});
  }
  [[nodiscard]] std::unique_ptr<StoredWeights> open() const { return open_stored_weights(folder.path(), config); }
};

TEST(Mxfp4Experts, AreReadAsTheDenseTensor) {
  const Mxfp4Folder f;
  const auto stored = f.open();
  EXPECT_THAT(stored->names(), UnorderedElementsAre("lm_head.weight", std::string(kDownProj)));
  const auto found = stored->find(kDownProj);
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->packed);
  EXPECT_EQ(found->shape, (Shape{kExperts, 32 * kGroups, kOut}));
  EXPECT_FALSE(is_quantized(f.folder.path(), f.config)) << "the weights can be trained";
  const Tensor values = Tensor::empty({2, 32 * kGroups, kOut}, DType::bf16);
  stored->read(kDownProj, values, 1);
  for (std::int64_t e = 0; e < 2; ++e)
    for (std::int64_t row = 0; row < kOut; ++row)
      for (std::int64_t in = 0; in < 32 * kGroups; ++in) {
        const std::int64_t at = ((e + 1) * kOut + row) * kGroups + in / 32;
        const std::uint8_t byte = f.blocks.data<std::uint8_t>()[at * 16 + in % 32 / 2];
        const float code = E2m1::decode(static_cast<std::uint8_t>(in % 2 == 0 ? byte & 0xF : byte >> 4));
        ASSERT_EQ(static_cast<float>(values.data<bfloat16>()[(e * 32 * kGroups + in) * kOut + row]),
                  code * decode_e8m0(f.scales.data<std::uint8_t>()[at]));
      }
  EXPECT_FALSE(stored->find("lm_head.weight")->packed);
}

TEST(Mxfp4Experts, FaultsNameTheTensor) {
  const Tensor values = Tensor::empty({kExperts, 32 * kGroups, kOut}, DType::bf16);
  EXPECT_THAT(
      [&] {
        Mxfp4Folder({kExperts, kOut, 1}).open()->read(kDownProj, values);
      },
      ThrowsMessage<Error>(HasSubstr("down_proj_scales has shape [3, 70, 1], expected [3, 70, 2]")));
  EXPECT_THAT(
      [&] {
        Mxfp4Folder({kExperts, kOut, kGroups}, 150).open()->read(kDownProj, values);
      },
      ThrowsMessage<Error>(HasSubstr("down_proj_scales: a scale of expert 1 is NaN")));
}

}  // namespace
}  // namespace quench
