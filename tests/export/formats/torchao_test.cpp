// Folders in TorchAO's safetensors layout, written and read back.

#include "core/safetensors/safetensors_folder.h"
#include "export/formats/torchao/description.h"
#include "export/formats/torchao/writer.h"
#include "export/methods/rtn.h"
#include "export/table/open_stored_weights.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kName = "model.layers.0.mlp.up_proj.weight";

TEST(TorchaoFolder, EverySchemeComesBack) {
  int count = 0;
  for (const Scheme& scheme : scheme_table()) {
    if (!torchao_problem(scheme).empty()) continue;
    ++count;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(scheme.name);
      const TempDir folder;
      const Tensor w = normal_weight({96, 256}, dtype), dense = normal_weight({8, 256}, dtype, 5);
      const std::vector<ModelTensor> tensors{tensor("model.layers.0.mlp.up_proj", w, &scheme),
                                             tensor("lm_head", dense, nullptr)};
      const auto stored = open_stored_weights(folder.path(), config_of(write_torchao(tensors, folder.path(), 1 << 30)));
      EXPECT_THAT(stored->names(), ElementsAre("lm_head.weight", kName));
      ASSERT_TRUE(stored->find(kName)->packed);
      EXPECT_EQ(stored->find(kName)->shape, w.shape());
      EXPECT_EQ(stored->inputs(kName), scheme.inputs);
      EXPECT_TRUE(equal_bytes(unpacked(stored->read_packed(kName)), unpacked(pack(*tensors[0].quantized, kName))));
      ASSERT_FALSE(stored->find("lm_head.weight")->packed);
      EXPECT_FALSE(stored->inputs("lm_head.weight"));
      const Tensor back = Tensor::empty(dense.shape(), dtype);
      stored->read("lm_head.weight", back);
      EXPECT_TRUE(equal_bytes(back, dense));
    }
  }
  EXPECT_GT(count, 80);
}

TEST(TorchaoFolder, ShardsHoldPartsOfAWeightApart) {
  const TempDir folder;
  const Scheme* scheme = find_scheme("int4_weight_only_g32_asym");
  const std::vector<ModelTensor> tensors{
      tensor("model.layers.0.mlp.up_proj", normal_weight({96, 256}, DType::f32), scheme)};
  const Json config = config_of(write_torchao(tensors, folder.path(), 16));
  ASSERT_TRUE(std::filesystem::exists(folder.path() / kModelIndexName));
  const auto stored = open_stored_weights(folder.path(), config);
  EXPECT_TRUE(equal_bytes(unpacked(stored->read_packed(kName)), unpacked(pack(*tensors[0].quantized, kName))));
}

class TorchaoRefusal : public ::testing::Test {
 protected:
  // What is said of this scheme's description when it has been changed so.
  static std::string after(const std::string& scheme,
                           const std::function<void(Json& description, Json& data)>& change) {
    const TempDir folder;
    (void)write_torchao(
        {tensor("model.layers.0.mlp.up_proj", normal_weight({32, 128}, DType::f32), find_scheme(scheme))},
        folder.path(), 1 << 30);
    const SafetensorsFolder files(folder.path());
    Json description = Json::parse(files.files().front().header().metadata.at(std::string(kName)));
    change(description, *description.find("_data"));
    try {
      (void)describe_torchao_weight(description, {32, 128}, "m: w");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(TorchaoRefusal, NamesTheAttribute) {
  const std::string int4 = "int8dyn_int4_g32";
  EXPECT_EQ(after(int4, [](Json&, Json&) {}), "");
  EXPECT_THAT(after(int4, [](Json& d, Json&) { d.set("_type", "Int4Tensor"); }),
              HasSubstr("m: w: weights of TorchAO's class Int4Tensor are not supported; known: Int8Tensor"));
  EXPECT_THAT(after(int4, [](Json& d, Json&) { d.erase("_type"); }), HasSubstr("the metadata have no class name"));
  EXPECT_THAT(after(int4, [](Json& d, Json&) { d.erase("_tensor_data_names"); }), HasSubstr("_tensor_data_names"));
  EXPECT_THAT(after(int4,
                    [](Json& d, Json&) {
                      d.set("_tensor_data_names", Json::Array{"qdata", "act_scale"});
                    }),
              HasSubstr("with act_scale is not supported"));
  EXPECT_THAT(after(int4, [](Json& d, Json&) { d.set("_tensor_data_names", Json::Array{"scale"}); }),
              HasSubstr("has no qdata"));
  EXPECT_THAT(after(int4, [](Json& d, Json&) { d.set("_data", 3); }), HasSubstr("no attributes"));
  EXPECT_THAT(after(int4, [](Json&, Json& a) { a.erase("block_size"); }), HasSubstr("block_size is missing"));
  for (const Json& size : {Json(3), Json(Json::Array{1}), Json(Json::Array{2, 32}), Json(Json::Array{1, 0})})
    EXPECT_THAT(after(int4, [&](Json&, Json& a) { a.set("block_size", size); }), HasSubstr("block_size"));
  EXPECT_THAT(after(int4, [](Json&, Json& a) { a.find("target_dtype")->set("_data", "int12"); }),
              HasSubstr("target_dtype"));
  EXPECT_THAT(after(int4, [](Json&, Json& a) { a.set("activation_quantization", "uint4"); }),
              HasSubstr("activation_quantization \"uint4\" is not supported"));
  EXPECT_THAT(after("mxfp8", [](Json&, Json& a) { a.set("is_swizzled_scales", true); }),
              HasSubstr("is_swizzled_scales"));
  EXPECT_THAT(after("mxfp8", [](Json&, Json& a) { a.find("elem_dtype")->set("_data", "float6"); }),
              HasSubstr("elem_dtype"));
  EXPECT_THAT(after("nvfp4_weight_only", [](Json&, Json& a) { a.set("act_quant_kwargs", Json::object()); }),
              HasSubstr("act_quant_kwargs"));
}

TEST(TorchaoFolder, CodesOutsideOfTheirBitsAreRefused) {
  const TempDir folder;
  const std::vector<ModelTensor> tensors{
      tensor("model.layers.0.mlp.up_proj", normal_weight({32, 128}, DType::f32), find_scheme("int4_weight_only_g32"))};
  const Json config = config_of(write_torchao(tensors, folder.path(), 1 << 30));
  const std::filesystem::path file = folder.path() / kModelFileName;
  std::uint64_t at = 0;
  {
    const SafetensorsReader reader(file);
    at = reader.header().data_start + reader.at("model.layers.0.mlp.up_proj._weight_qdata").begin;
  }
  std::string bytes = read_file(file);
  bytes[at] = 100;
  write_file(file, bytes);
  try {
    (void)open_stored_weights(folder.path(), config)->read_packed(kName);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), HasSubstr("codes outside of 4 bits"));
  }
}

}  // namespace
}  // namespace quench
