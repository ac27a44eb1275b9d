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
       {std::pair{R"({"weight_block_size": [64, 128]})", "weight_block_size is [64,128]; square blocks"},
        std::pair{R"({"activation_scheme": "none"})", "activation_scheme is \"none\"; dynamic and static"},
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

// Partial blocks at the ends of rows and columns, one scale a tensor, powers of two
// (tests/reference/make_float8_folders.py).
TEST(FineGrainedFloat8, ValuesMatchTransformers) {
  const Json cases = Json::parse_file(source_dir() / "tests/reference/float8_folders.json");
  for (const Json& one : cases.as_array()) {
    const auto bytes = [&](const char* key) {
      std::vector<std::uint8_t> values;
      for (const Json& value : one.at(key).as_array()) values.push_back(static_cast<std::uint8_t>(value.as_int()));
      return values;
    };
    const std::vector<std::uint8_t> codes = bytes("codes"), scales = bytes("scales");
    const std::string dtype = one.at("dtype").as_string();
    std::vector<std::int64_t> shape;
    for (const Json& size : one.at("scales_shape").as_array()) shape.push_back(size.as_int());
    SCOPED_TRACE(one.at("weight_block_size").dump() + " " + dtype);
    const std::string name = "model.layers.0.mlp.up_proj.weight";
    for (const DType stored : {DType::f8_e8m0, DType::u8}) {  // dtypes of powers of two
      const TempDir folder;
      write_safetensors(folder / "model.safetensors", {{name, DType::f8_e4m3, {6, 10}, std::as_bytes(std::span(codes))},
                                                       {name + "_scale_inv",
                                                        dtype == "float32"    ? DType::f32
                                                        : dtype == "bfloat16" ? DType::bf16
                                                                              : stored,
                                                        Shape(shape), std::as_bytes(std::span(scales))}});
      Json section = *published().find("quantization_config");
      section.set("weight_block_size", one.at("weight_block_size"));
      const auto weights = open_stored_weights(folder.path(), config_of(section));
      EXPECT_THAT(weights->names(), ElementsAre(name));
      const Tensor values = unpacked(weights->read_packed(name));
      const Json::Array& expected = one.at("values").as_array();
      for (std::int64_t i = 0; i < values.numel(); ++i)
        ASSERT_EQ(values.data<float>()[i], static_cast<float>(expected[static_cast<std::size_t>(i)].as_double())) << i;
    }
  }
}

TEST(FineGrainedFloat8, StaticInputsHaveTheScaleOfTheFile) {
  for (const auto& [weight_scale, input_scale] :
       {std::pair{".weight_scale_inv", ".activation_scale"}, {".weight_scale", ".input_scale"}}) {
    const PublishedFolder f;
    const std::string layer = "model.layers.0.mlp.up_proj";
    const std::array<float, 2> scales{0.25f, 0.375f};
    const auto bytes = std::as_bytes(std::span(scales));
    write_safetensors(f.folder / "model.safetensors",
                      {{layer + ".weight", DType::f8_e4m3, f.weight.shape, bytes_of(f.weight.codes)},
                       {layer + weight_scale, DType::f32, {}, bytes.first(4)},
                       {layer + input_scale, DType::f32, {}, bytes.last(4)}});
    const auto stored = open_stored_weights(f.folder.path(),
                                            published(R"({"weight_block_size": null, "activation_scheme": "static"})"));
    EXPECT_THAT(stored->names(), ElementsAre(layer + ".weight"));
    EXPECT_EQ(stored->inputs(layer + ".weight"), find_scheme("float8_static")->inputs);
    EXPECT_EQ(stored->input_scale(layer + ".weight"), 0.375f);
    const float code = E4m3::decode(f.weight.codes.data<float8_e4m3>()[5].bits);
    EXPECT_EQ(unpacked(stored->read_packed(layer + ".weight")).data<float>()[5], code * 0.25f);
    const auto dynamic = open_stored_weights(f.folder.path(), published(R"({"weight_block_size": null})"));
    EXPECT_EQ(dynamic->inputs(layer + ".weight"), find_scheme("float8_dynamic_tensor")->inputs);
  }
}

TEST(FineGrainedFloat8, ScalesThatContradictTheBlocksAreRefusedByName) {
  const PublishedFolder f;
  const auto stored = open_stored_weights(f.folder.path(), published(R"({"weight_block_size": null})"));
  try {
    (void)stored->read_packed("model.layers.0.mlp.up_proj.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("up_proj.weight_scale_inv has shape [2, 2], expected [1] for weight_block_size null"));
  }
}

}  // namespace
}  // namespace quench
