// Folders of compressed-tensors, written and read back.

#include "export/compressed_tensors/config.h"
#include "export/compressed_tensors/writer.h"
#include "export/round_to_nearest.h"
#include "export/stored_weights.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CompressedTensors, EverySchemeComesBack) {
  int count = 0;
  for (const Scheme& scheme : scheme_table()) {
    if (!compressed_problem(scheme).empty()) continue;
    ++count;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(scheme.name);
      const TempDir folder;
      const Tensor w = normal_weight({96, 256}, dtype), dense = normal_weight({8, 256}, dtype, 5);
      const std::vector<ModelTensor> tensors{tensor("model.layers.0.mlp.up_proj", w, &scheme),
                                             tensor("lm_head", dense, nullptr)};
      const Json config = config_of(write_compressed_tensors(tensors, folder.path(), 1 << 30));
      const auto stored = open_stored_weights(folder.path(), config);
      EXPECT_THAT(stored->names(), ElementsAre("lm_head.weight", "model.layers.0.mlp.up_proj.weight"));
      const std::string name = "model.layers.0.mlp.up_proj.weight";
      ASSERT_TRUE(stored->find(name)->packed);
      EXPECT_EQ(stored->find(name)->shape, w.shape());
      EXPECT_EQ(stored->inputs(name), scheme.inputs);
      EXPECT_TRUE(equal_bytes(unpacked(stored->read_packed(name)), unpacked(pack(*tensors[0].quantized, name))));
      ASSERT_FALSE(stored->find("lm_head.weight")->packed);
      const Tensor back = Tensor::empty(dense.shape(), dtype);
      stored->read("lm_head.weight", back);
      EXPECT_TRUE(equal_bytes(back, dense));
    }
  }
  EXPECT_GT(count, 80);
}

TEST(CompressedTensors, LayersMayHaveSchemesOfTheirOwn) {
  const TempDir folder;
  const Tensor w = normal_weight({32, 128}, DType::f32);
  const std::vector<ModelTensor> tensors{
      tensor("model.layers.0.mlp.up_proj", w, find_scheme("int4_weight_only_g32_asym")),
      tensor("model.layers.0.mlp.down_proj", w, find_scheme("float8_dynamic"))};
  const Json config = config_of(write_compressed_tensors(tensors, folder.path(), 1 << 30));
  EXPECT_EQ(config.at(kQuantizationConfig).at("format").as_string(), "mixed-precision");
  const auto stored = open_stored_weights(folder.path(), config);
  EXPECT_EQ(stored->read_packed("model.layers.0.mlp.up_proj.weight").codes().dtype(), DType::i4);
  EXPECT_EQ(stored->read_packed("model.layers.0.mlp.down_proj.weight").codes().dtype(), DType::f8_e4m3);
  EXPECT_FALSE(stored->inputs("model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(stored->inputs("model.layers.0.mlp.down_proj.weight"));
}

class ConfigRefusal : public ::testing::Test {
 protected:
  // What is said of a config whose single group has been changed so.
  static std::string after(const std::function<void(Json& config, Json& weights)>& change) {
    Json config = compressed_config(
        {{CompressedForm::packed_integers, find_scheme("int4_weight_only_g32")->weights, {}, {"Linear"}}}, {});
    change(config, *config.find("config_groups")->find("group_0")->find("weights"));
    try {
      (void)read_compressed_config(config, "m/config.json");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(ConfigRefusal, NamesTheKey) {
  EXPECT_EQ(after([](Json&, Json&) {}), "");
  EXPECT_THAT(after([](Json&, Json& w) { w.set("num_bits", 9); }), HasSubstr("group_0.weights.num_bits"));
  EXPECT_THAT(after([](Json&, Json& w) { w.set("type", "complex"); }), HasSubstr("weights.type: complex"));
  EXPECT_THAT(after([](Json&, Json& w) { w.set("strategy", "attn_head"); }), HasSubstr("weights.strategy"));
  EXPECT_THAT(after([](Json&, Json& w) { w.set("actorder", "group"); }), HasSubstr("weights.actorder"));
  EXPECT_THAT(after([](Json&, Json& w) { w.set("type", "float"); }), HasSubstr("does not go with its weights"));
  EXPECT_THAT(after([](Json& c, Json&) { c.set("kv_cache_scheme", Json::object()); }), HasSubstr("kv_cache_scheme"));
  EXPECT_THAT(after([](Json& c, Json&) { c.find("config_groups")->find("group_0")->set("format", "marlin-24"); }),
              HasSubstr("format 'marlin-24' is not supported"));
}

TEST(StoredWeights, NamesMethodsThatItDoesNotKnow) {
  Json quantization = Json::object();
  quantization.set("quant_method", "gptq");
  try {
    (void)open_stored_weights("m", config_of(quantization));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("quantized by 'gptq'"));
  }
}

}  // namespace
}  // namespace quench
