// Folders of compressed-tensors, written and read back.

#include "core/ops/elementwise.h"
#include "core/safetensors/safetensors.h"
#include "core/safetensors/safetensors_folder.h"
#include "export/formats/compressed_tensors/config.h"
#include "export/formats/compressed_tensors/writer.h"
#include "export/formats/stored_weights.h"
#include "export/methods/rtn.h"
#include "export/table/open_stored_weights.h"
#include "tests/export/export_testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(CompressedTensors, EverySchemeComesBack) {
  int count = 0;
  for (const Scheme& scheme : scheme_table()) {
    if (!compressed_problem(scheme).empty()) continue;
    ++count;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(scheme.name);
      const TempDir folder;
      const Tensor w = normal_weight({96, 256}, dtype), dense = normal_weight({8, 256}, dtype, 5);
      std::vector<ModelTensor> tensors{tensor("model.layers.0.mlp.up_proj", w, &scheme),
                                       tensor("lm_head", dense, nullptr)};
      if (scheme.inputs && needs_input_scale(*scheme.inputs)) {
        const auto calibrated = std::make_shared<QuantizedWeight>(*tensors[0].quantized);
        calibrated->input_scale = Tensor::from_values<float>({1}, std::array{0.5f});
        tensors[0].quantized = calibrated;
      }
      const Json config = config_of(write_compressed_tensors(tensors, folder.path(), 1 << 30));
      const auto stored = open_stored_weights(folder.path(), config);
      EXPECT_THAT(stored->names(), ElementsAre("lm_head.weight", "model.layers.0.mlp.up_proj.weight"));
      const std::string name = "model.layers.0.mlp.up_proj.weight";
      ASSERT_TRUE(stored->find(name)->packed);
      EXPECT_EQ(stored->find(name)->shape, w.shape());
      EXPECT_EQ(stored->inputs(name), scheme.inputs);
      EXPECT_TRUE(equal_bytes(unpacked(stored->read_packed(name)), unpacked(pack(*tensors[0].quantized, name))));
      EXPECT_EQ(stored->read_packed(name).global_scales().defined(),
                tensors[0].quantized->scheme.scale == ScaleForm::e4m3_two_level);
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

// Groups of two layers, whose targets others have chosen.
class Targets : public ::testing::Test {
 protected:
  Targets() {
    const Tensor w = normal_weight({32, 128}, DType::f32);
    const std::vector<ModelTensor> tensors{tensor("model.layers.0.mlp.up_proj", w, find_scheme("int4_weight_only_g32")),
                                           tensor("model.embed_tokens", w, find_scheme("int8_weight_only"))};
    config_ = config_of(write_compressed_tensors(tensors, folder_.path(), 1 << 30));
  }

  // Whether layers have their codes when the groups of 4 and of 8 bits come in this order with these targets.
  bool readable(std::vector<std::pair<int, std::string>> groups) {
    const Json written = config_.at(kQuantizationConfig).at("config_groups");
    Json changed = Json::object();
    for (const auto& [bits, target] : groups)
      for (const auto& [name, group] : written.as_object())
        if (group.at("weights").at("num_bits").as_int() == bits) {
          Json copy = group;
          copy.set("targets", Json::Array{Json(target)});
          changed.set(fmt::format("group_{}", changed.as_object().size()), std::move(copy));
        }
    Json config = config_;
    config.find(kQuantizationConfig)->set("config_groups", std::move(changed));
    try {
      const auto stored = open_stored_weights(folder_.path(), config);
      return stored->read_packed("model.layers.0.mlp.up_proj.weight").codes().dtype() == DType::i4 &&
             stored->read_packed("model.embed_tokens.weight").codes().dtype() == DType::i8;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  TempDir folder_;
  Json config_;
};

TEST_F(Targets, TheClosestOneCounts) {
  EXPECT_TRUE(readable({{4, "model.layers.0.mlp.up_proj"}, {8, "model.embed_tokens"}}));
  EXPECT_TRUE(readable({{8, "re:model.*"}, {4, "model.layers.0.mlp.up_proj"}})) << "a name before an expression";
  EXPECT_TRUE(readable({{8, "re:model.*"}, {4, "re:.*mlp.*"}})) << "expressions in the order of their text";
  EXPECT_FALSE(readable({{4, "re:model.*"}, {8, "re:.*"}}));
  EXPECT_TRUE(readable({{4, "Linear"}, {8, "re:.*embed_tokens$"}})) << "an expression before a class";
  EXPECT_TRUE(readable({{8, "Embedding"}, {4, "Linear"}}));
  EXPECT_TRUE(readable({{4, "Linear"}, {8, "Embedding"}}));
  EXPECT_FALSE(readable({{4, "Linear"}, {8, "Linear"}})) << "no class for embeddings";
  EXPECT_TRUE(readable({{8, "re:.*up.*"}, {4, "re:.*up.*"}, {8, "Embedding"}})) << "the last of the same target";
}

// Readers take a tied head for a linear layer, too.
TEST(CompressedTensors, HeadsWithoutCodesAreIgnored) {
  const Tensor w = normal_weight({32, 128}, DType::f32);
  const Scheme* scheme = find_scheme("int8_weight_only");
  const auto ignored = [&](const std::vector<ModelTensor>& tensors) {
    const TempDir folder;
    std::vector<std::string> names;
    const Json config = write_compressed_tensors(tensors, folder.path(), 1 << 30);
    for (const Json& name : config.at("ignore").as_array()) names.push_back(name.as_string());
    return names;
  };
  const ModelTensor layer = tensor("model.layers.0.mlp.up_proj", w, scheme);
  EXPECT_THAT(ignored({tensor("model.embed_tokens", w, nullptr), layer}),
              UnorderedElementsAre("model.embed_tokens", "lm_head"));
  EXPECT_THAT(ignored({layer, tensor("lm_head", w, nullptr)}), ElementsAre("lm_head"));
  EXPECT_THAT(ignored({layer, tensor("lm_head", w, scheme)}), ElementsAre());
}

// vLLM's head is no "Linear".
TEST(CompressedTensors, AQuantizedHeadIsATargetByName) {
  const Tensor w = normal_weight({32, 128}, DType::f32);
  const Scheme* scheme = find_scheme("int8_weight_only");
  const ModelTensor layer = tensor("model.layers.0.mlp.up_proj", w, scheme);
  const auto targets = [&](const Scheme* of_head) {
    const TempDir folder;
    const Json config = write_compressed_tensors({layer, tensor("lm_head", w, of_head)}, folder.path(), 1 << 30);
    const auto stored = open_stored_weights(folder.path(), config_of(config));
    EXPECT_EQ(stored->find("lm_head.weight")->packed, of_head != nullptr);
    std::vector<std::string> names;
    for (const auto& [name, group] : config.at("config_groups").as_object())
      for (const Json& target : group.at("targets").as_array()) names.push_back(target.as_string());
    return names;
  };
  EXPECT_THAT(targets(scheme), ElementsAre("Linear", "lm_head"));
  EXPECT_THAT(targets(nullptr), ElementsAre("Linear"));
  EXPECT_THAT(targets(find_scheme("float8_dynamic")), ElementsAre("model.layers.0.mlp.up_proj", "lm_head"));
}

TEST(CompressedTensors, InputsThatGroupsDoNotDivideAreRefused) {
  const Scheme& scheme = *find_scheme("float8_dynamic_block");
  EXPECT_EQ(shape_problem(scheme.weights, 96, 256, scheme.inputs), "");
  EXPECT_EQ(shape_problem(scheme.weights, 96, 160), "") << "blocks at the edge may be smaller";
  EXPECT_THAT(shape_problem(scheme.weights, 96, 160, scheme.inputs), HasSubstr("groups of 128"));
  const TempDir folder;
  const std::string layer = "model.layers.0.mlp.up_proj";
  const Json config = config_of(
      write_compressed_tensors({tensor(layer, normal_weight({96, 160}, DType::f32), &scheme)}, folder.path(), 1 << 30));
  try {
    (void)open_stored_weights(folder.path(), config)->read_packed(layer + ".weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt);
    EXPECT_THAT(error.what(), AllOf(HasSubstr(layer), HasSubstr("groups of 128, which do not divide 160")));
  }
}

// Scales have the dtype of the model that was calibrated.
TEST(CompressedTensors, ScalesOfInputsMayHaveAnyDtype) {
  const Scheme* scheme = find_scheme("float8_static");
  const std::string layer = "model.layers.0.mlp.up_proj";
  const Tensor w = normal_weight({32, 128}, DType::f32), codes = Tensor::zeros({32, 128}, DType::f8_e4m3);
  Json config;
  {
    const TempDir folder;
    config = config_of(write_compressed_tensors({tensor(layer, w, scheme)}, folder.path(), 1 << 30));
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const TempDir folder;
    const Tensor one = Tensor::from_values<float>({1}, std::array{0.375f}), scale = Tensor::empty({1}, dtype);
    cast({one, scale});
    const auto item = [&](const char* part, const Tensor& t) {
      return SafetensorsItem{.name = layer + part,
                             .dtype = t.dtype(),
                             .shape = t.shape(),
                             .data = {static_cast<const std::byte*>(t.raw_data()), t.nbytes()}};
    };
    write_safetensors(folder / "model.safetensors",
                      {item(".weight", codes), item(".weight_scale", one), item(".input_scale", scale)});
    EXPECT_EQ(open_stored_weights(folder.path(), config)->input_scale(layer + ".weight"), 0.375f) << to_string(dtype);
  }
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
  EXPECT_THAT(after([](Json&, Json& w) { w.set("type", "float"); }), HasSubstr("the format contradicts the weights"));
  const auto group = [](Json& c) { return c.find("config_groups")->find("group_0"); };
  EXPECT_THAT(after([&](Json& c, Json& w) { group(c)->set("output_activations", w); }),
              HasSubstr("group_0.output_activations: rounded outputs are not supported"));
  EXPECT_THAT(after([&](Json& c, Json& w) {
                const Json inputs = w;
                group(c)->set("input_activations", inputs);
                group(c)->set("weights", nullptr);
              }),
              HasSubstr("group_0.input_activations: quantized inputs with unquantized weights are not supported"));
  EXPECT_EQ(after([&](Json& c, Json& w) {
              const Json inputs = w;
              group(c)->set("input_activations", inputs);
              group(c)->set("weights", nullptr);
              group(c)->set("targets", Json::Array{"LlamaAttention"});
            }),
            "")
      << "attention has kv_cache_scheme";
  EXPECT_THAT(after([](Json& c, Json&) { c.find("config_groups")->find("group_0")->set("format", "marlin-24"); }),
              HasSubstr("format 'marlin-24' is not supported"));
}

// Folders for vLLM with a float8 cache: attention has scales next to its weights.
TEST(CompressedTensors, ScalesOfTheCacheAreNoWeights) {
  const TempDir folder;
  const Tensor w = normal_weight({8, 64}, DType::bf16);
  const std::string attention = "model.layers.0.self_attn";
  Json config = write_compressed_tensors({tensor(attention + ".k_proj", w, find_scheme("float8_dynamic"))},
                                         folder.path(), std::uint64_t{1} << 30);
  std::vector<SafetensorsItem> items;
  const SafetensorsFolder written(folder.path());
  std::vector<std::vector<std::byte>> kept;
  for (const std::string& name : written.names()) {
    const auto found = written.at(name);
    kept.emplace_back(found.entry->nbytes());
    found.read(kept.back());
    items.push_back({name, *found.entry->dtype, found.entry->shape, {}});
  }
  for (std::size_t i = 0; i < items.size(); ++i) items[i].data = kept[i];
  const float scale = 0.5f;
  const auto bytes = std::as_bytes(std::span(&scale, 1));
  for (const char* part : {".k_scale", ".v_scale", ".k_proj.output_scale"})
    items.push_back({attention + part, DType::f32, {1}, bytes});
  write_safetensors(folder / "model.safetensors", items);
  Json cache = Json::object();
  cache.set("num_bits", 8);
  cache.set("type", "float");
  cache.set("strategy", "tensor");
  cache.set("dynamic", false);
  config.set("kv_cache_scheme", cache);
  const testing::CapturedLog log;
  const auto weights = open_stored_weights(folder.path(), config_of(config));
  EXPECT_EQ(weights->names(), std::vector{attention + ".k_proj.weight"});
  EXPECT_TRUE(weights->find(attention + ".k_proj.weight")->packed);
  EXPECT_GT(signal_to_noise(w, weights->read_packed(attention + ".k_proj.weight")), 25);
  EXPECT_EQ(log.text(), "");
}

TEST(StoredWeights, NamesMethodsThatItDoesNotKnow) {
  Json quantization = Json::object();
  quantization.set("quant_method", "aqlm");
  try {
    (void)open_stored_weights("m", config_of(quantization));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("quantized by 'aqlm'"));
  }
}

}  // namespace
}  // namespace quench
