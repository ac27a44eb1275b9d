// NVFP4: one global scale for the parts of a fused layer, as engines decode them and QAT simulates them.

#include <map>

#include "export/ptq/quantize_model.h"
#include "recipes/qat/fake_quantizer.h"
#include "tests/export/export_testing.h"

namespace quench {
namespace {

using namespace testing;

class SharedAmax : public ::testing::Test {
 protected:
  static nn::ModelConfig config(std::string_view type) {
    Json json = Json::parse(R"({"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
        "initializer_range": 0.15, "eos_token_id": 2})");
    json.set("model_type", Json(type));
    if (type == "mixtral") {
      json.set("num_local_experts", 3);
      json.set("num_experts_per_tok", 2);
    }
    return nn::parse_model_config(json, "config.json");
  }

  // Rows of the parts times these factors.
  static void scale_rows(nn::CausalLm& model, const std::map<std::string, float>& factors) {
    for (nn::Parameter* parameter : model.parameters())
      for (const nn::ParameterPiece& piece : parameter->pieces)
        for (const auto& [part, factor] : factors) {
          if (piece.hf_name.find(part) == std::string::npos) continue;
          const Tensor rows = parameter->variable.value().narrow(0, piece.row_begin, piece.rows);
          for (std::int64_t i = 0; i < rows.numel(); ++i) rows.data<float>()[i] *= factor;
        }
  }

  static std::vector<ModelTensor> quantized(nn::CausalLm& model, std::string_view scheme,
                                            std::string_view method = "rtn") {
    std::vector<ModelTensor> tensors = model_tensors(model, DType::f32);
    const auto data = std::make_shared<CalibrationData>();
    for (int s = 0; s < 4; ++s) {
      data->sequences.emplace_back();
      for (int i = 0; i < 40; ++i) data->sequences.back().push_back((i * i + 7 * s) % 96);
    }
    QuantizationRules rules{.scheme = find_scheme(scheme), .quantizer = &require_quantizer(method, "method")};
    if (needs_calibration(rules)) rules.calibration = data;
    (void)quantize_model(model, tensors, rules);
    return tensors;
  }

  static const QuantizedWeight& part(const std::vector<ModelTensor>& tensors, std::string_view name) {
    for (const ModelTensor& tensor : tensors)
      if (tensor.quantized != nullptr && tensor.layer.ends_with(name)) return *tensor.quantized;
    throw std::runtime_error(std::string(name));
  }
  static float global(const std::vector<ModelTensor>& tensors, std::string_view name) {
    return part(tensors, name).global_scale.data<float>()[0];
  }
};

TEST_F(SharedAmax, PartsOfALinearLayerHaveOneGlobalScale) {
  for (const auto& [scheme, method] : {std::pair{"nvfp4_weight_only", "rtn"},
                                       {"nvfp4_weight_only", "gptq"},
                                       {"nvfp4_weight_only", "awq"},
                                       {"nvfp4", "rtn"},
                                       {"nvfp4", "smoothquant_gptq"}}) {
    SCOPED_TRACE(fmt::format("{} {}", scheme, method));
    nn::CausalLm model(config("llama"), {.dtype = DType::f32, .trainable = false});
    model.initialize(5);
    scale_rows(model, {{"q_proj", 10.0f}, {"k_proj", 2.5f}, {"up_proj", 0.0f}});
    const auto tensors = quantized(model, scheme, method);
    EXPECT_EQ(global(tensors, "q_proj"), global(tensors, "k_proj"));
    EXPECT_EQ(global(tensors, "q_proj"), global(tensors, "v_proj"));
    EXPECT_EQ(global(tensors, "gate_proj"), global(tensors, "up_proj"));
    EXPECT_LT(global(tensors, "up_proj"), 0.1f) << "the scale of an all-zero weight alone is 1";
    EXPECT_NE(global(tensors, "gate_proj"), global(tensors, "q_proj"));
    if (std::string_view(scheme) != "nvfp4") continue;
    const auto inputs = [&](const char* name) { return part(tensors, name).input_scale.data<float>()[0]; };
    EXPECT_EQ(inputs("q_proj"), inputs("k_proj"));
    EXPECT_EQ(inputs("q_proj"), inputs("v_proj"));
    EXPECT_EQ(inputs("gate_proj"), inputs("up_proj"));
  }
}

TEST_F(SharedAmax, AnAllZeroLayerKeepsOne) {
  nn::CausalLm model(config("llama"), {.dtype = DType::f32, .trainable = false});
  model.initialize(5);
  scale_rows(model, {{"gate_proj", 0.0f}, {"up_proj", 0.0f}});
  const auto tensors = quantized(model, "nvfp4_weight_only");
  EXPECT_EQ(global(tensors, "gate_proj"), 1.0f);
  EXPECT_EQ(global(tensors, "up_proj"), 1.0f);
}

TEST_F(SharedAmax, GateAndUpOfAnExpertHaveOneGlobalScale) {
  nn::CausalLm model(config("mixtral"), {.dtype = DType::f32, .trainable = false});
  model.initialize(5);
  scale_rows(model, {{"w1", 4.0f}, {"experts.1.", 8.0f}});
  for (const char* method : {"rtn", "gptq"}) {
    const auto tensors = quantized(model, "nvfp4_weight_only", method);
    for (const char* expert : {"experts.0.", "experts.1.", "experts.2."}) {
      EXPECT_EQ(global(tensors, std::string(expert) + "w1"), global(tensors, std::string(expert) + "w3"));
      EXPECT_NE(global(tensors, std::string(expert) + "w1"), global(tensors, std::string(expert) + "w2"));
    }
    EXPECT_GT(global(tensors, "experts.1.w1"), 4 * global(tensors, "experts.0.w1"));
  }
}

// Bit for bit, of linear layers and experts.
TEST_F(SharedAmax, ExportsTheValuesThatQatSimulates) {
  for (const char* type : {"llama", "mixtral"}) {
    SCOPED_TRACE(type);
    nn::CausalLm model(config(type), {.dtype = DType::f32, .trainable = false});
    model.initialize(5);
    scale_rows(model, {{"q_proj", 10.0f}, {"k_proj", 2.5f}, {"gate_proj", 3.0f}, {"w3", 5.0f}, {"experts.2.", 7.0f}});
    int compared = 0;
    for (const ModelTensor& tensor : quantized(model, "nvfp4_weight_only")) {
      if (tensor.quantized == nullptr) continue;
      const nn::Parameter& parameter = *tensor.parameter;
      const Tensor simulated =
          recipes::fake_quantize_each(parameter.variable.value(), std::max<std::int64_t>(parameter.experts, 1),
                                      {.kind = recipes::FakeFormat::Kind::nvfp4}, false)
              .values.narrow(0, tensor.piece->row_begin, tensor.piece->rows);
      EXPECT_TRUE(equal_bytes(unpacked(pack(*tensor.quantized, tensor.name)), simulated)) << tensor.name;
      ++compared;
    }
    EXPECT_GE(compared, 7);
  }
}

}  // namespace
}  // namespace quench
