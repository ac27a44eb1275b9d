// Folders of quant_method "fp8", as DeepSeek-V3 is published: weights in e4m3 with a scale for 128 x 128 elements.

#include "core/safetensors/safetensors.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json published(const char* more = "{}") {
  Json section = Json::parse(R"({"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
    "weight_block_size": [128, 128]})");
  const Json members = Json::parse(more);
  for (const auto& [key, value] : members.as_object()) section.set(key, value);
  return config_of(section);
}

std::span<const std::byte> bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.raw_data()), t.nbytes()};
}

// A weight that the blocks do not divide, under its published names; a dense one next to it.
struct PublishedFolder {
  TempDir folder;
  QuantizedWeight weight;
  Tensor dense = normal_weight({8, 256}, DType::bf16, 5);

  PublishedFolder()
      : weight(rtn(normal_weight({200, 256}, DType::f32), find_scheme("float8_dynamic_block")->weights, "w")) {
    write_safetensors(
        folder / "model.safetensors",
        {{"model.layers.0.mlp.up_proj.weight", DType::f8_e4m3, weight.shape, bytes_of(weight.codes)},
         {"model.layers.0.mlp.up_proj.weight_scale_inv", DType::f32, weight.scales.shape(), bytes_of(weight.scales)},
         {"lm_head.weight", DType::bf16, dense.shape(), bytes_of(dense)}});
  }
};

TEST(FineGrainedFloat8, CodesTimesTheirBlockScales) {
  const PublishedFolder f;
  const auto stored = open_stored_weights(f.folder.path(), published());
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  EXPECT_THAT(stored->names(), ElementsAre("lm_head.weight", name));
  ASSERT_TRUE(stored->find(name)->packed);
  EXPECT_EQ(stored->find(name)->shape, f.weight.shape);
  const Tensor values = unpacked(stored->read_packed(name));
  EXPECT_TRUE(equal_bytes(values, unpacked(pack(f.weight, name))));
  // Row 150 is in the second block of rows.
  const float code = E4m3::decode(f.weight.codes.data<float8_e4m3>()[150 * 256 + 130].bits);
  EXPECT_FLOAT_EQ(values.data<float>()[150 * 256 + 130], code * f.weight.scales.data<float>()[3]);
  EXPECT_EQ(stored->inputs(name), find_scheme("float8_dynamic_block")->inputs);
  EXPECT_FALSE(stored->find("lm_head.weight")->packed);
  EXPECT_TRUE(is_quantized(f.folder.path(), published()));
}

TEST(FineGrainedFloat8, OtherFormsAreRefusedByName) {
  const PublishedFolder f;
  for (const auto& [members, text] :
       {std::pair{R"({"weight_block_size": [64, 128]})", "weight_block_size is [64,128]; [128, 128] is read"},
        std::pair{R"({"weight_block_size": null})", "weight_block_size is null"},
        std::pair{R"({"activation_scheme": "static"})", "activation_scheme is \"static\"; dynamic is read"},
        std::pair{R"({"fmt": "e5m2"})", "fmt is \"e5m2\"; e4m3 is read"}}) {
    try {
      (void)open_stored_weights(f.folder.path(), published(members));
      ADD_FAILURE() << "read: " << members;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
}

}  // namespace
}  // namespace quench
