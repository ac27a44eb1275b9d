// AutoRound of whole models: method "autoround" of quantize_model().

#include "export/ptq/tune_block.h"

#include <cmath>
#include <limits>

#include "tests/core/ops/op_testing.h"
#include "tests/export/export_testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using namespace testing;

class AutoRound : public ::testing::Test {
 protected:
  AutoRound() {
    for (int s = 0; s < 6; ++s) {
      sequences_.emplace_back();
      for (int i = 0; i < 30 + s; ++i) sequences_.back().push_back((i * i + 7 * s) % 96);
    }
  }

  static std::unique_ptr<nn::CausalLm> model(DType dtype = DType::f32, std::string_view more = "{}") {
    Json json = Json::parse(R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "initializer_range": 0.15, "eos_token_id": 2})");
    const Json others = Json::parse(more);
    for (const auto& [key, value] : others.as_object()) json.set(key, value);
    auto made = std::make_unique<nn::CausalLm>(nn::parse_model_config(json, "config.json"),
                                               nn::ParameterOptions{.dtype = dtype, .trainable = false});
    made->initialize(5);
    return made;
  }

  QuantizationRules rules(std::string_view method, std::string_view scheme) const {
    return {.scheme = find_scheme(scheme),
            .exclude = {"lm_head"},
            .quantizer = &require_quantizer(method, "method"),
            .options = {.iterations = 30, .batch_size = 3},
            .calibration = std::make_shared<CalibrationData>(CalibrationData{sequences_, "test"})};
  }

  // Final states of the sequences.
  std::vector<Tensor> states(nn::CausalLm& model) const {
    LayerWalk walk(model, sequences_);
    for (std::int64_t i = walk.layers(); i > 0; --i) walk.advance();
    return walk.final_states();
  }

  double loss_of(std::string_view method, std::string_view scheme) const {
    const auto quantized = model(), whole = model();
    std::vector<ModelTensor> tensors = model_tensors(*quantized, DType::f32);
    (void)quantize_model(*quantized, tensors, rules(method, scheme));
    double sum = 0;
    const std::vector<Tensor> a = states(*quantized), b = states(*whole);
    for (std::size_t s = 0; s < a.size(); ++s)
      for (std::int64_t i = 0; i < a[s].numel(); ++i) sum += std::pow(a[s].data<float>()[i] - b[s].data<float>()[i], 2);
    return sum;
  }

  static std::vector<std::uint8_t> bytes_of(const std::vector<ModelTensor>& tensors) {
    std::vector<std::uint8_t> bytes;
    for (const ModelTensor& tensor : tensors)
      if (tensor.quantized != nullptr)
        for (const Tensor& part : {tensor.quantized->codes, tensor.quantized->scales}) {
          const auto* begin = static_cast<const std::uint8_t*>(part.raw_data());
          bytes.insert(bytes.end(), begin, begin + part.nbytes());
        }
    return bytes;
  }

  std::vector<std::vector<std::int32_t>> sequences_;
};

TEST_F(AutoRound, LosesLessThanRoundToNearestAndGptq) {
  for (const char* scheme : {"int2_weight_only_g32", "int3_weight_only_g32_asym"}) {
    SCOPED_TRACE(scheme);
    const double tuned = loss_of("autoround", scheme);
    EXPECT_LT(tuned, 0.8 * loss_of("rtn", scheme));
    EXPECT_LT(tuned, 0.8 * loss_of("mse", scheme));
    EXPECT_LT(tuned, loss_of("gptq", scheme));
  }
  EXPECT_LT(loss_of("autoround", "nvfp4_weight_only"), 0.8 * loss_of("rtn", "nvfp4_weight_only"));
}

TEST_F(AutoRound, RunsAreEqualBitForBit) {
  std::vector<std::uint8_t> first;
  for (int run = 0; run < 2; ++run) {
    const auto one = model(DType::bf16);
    std::vector<ModelTensor> tensors = model_tensors(*one, DType::bf16);
    (void)quantize_model(*one, tensors, rules("autoround", "int3_weight_only_g32"));
    const std::vector<std::uint8_t> bytes = bytes_of(tensors);
    EXPECT_FALSE(bytes.empty());
    if (run == 0) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

// Values of the model while it is tuned: its own again afterwards.
TEST_F(AutoRound, TuningLeavesParametersAndGradientsAsTheyWere) {
  const auto one = model();
  std::vector<ModelTensor> tensors = model_tensors(*one, DType::f32);
  std::vector<QuantizedLayer> layers;
  std::vector<std::vector<float>> before;
  for (ModelTensor& tensor : tensors)
    if (tensor.layer.starts_with("model.layers.0.")) {
      layers.push_back({&tensor, {find_scheme("int2_weight_only_g32"), ""}});
      before.push_back(floats(tensor.value()));
    }
  std::vector<BlockWeight> weights;
  for (QuantizedLayer& layer : layers) weights.push_back({&layer, Tensor()});
  LayerWalk walk(*one, sequences_, true);
  walk.advance_reference();
  tune_block(walk, weights, rules("autoround", "int2_weight_only_g32"), 0);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_NE(layers[i].tuned, nullptr);
    EXPECT_EQ(floats(layers[i].tensor->value()), before[i]);
    EXPECT_FALSE(layers[i].tensor->parameter->variable.requires_grad());
  }
}

constexpr std::string_view kExperts = R"({"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 1})";

TEST_F(AutoRound, ExpertsWithoutTokensAreRounded) {
  sequences_ = {{7, 7, 7}};
  const auto one = model(DType::f32, kExperts);
  std::vector<ModelTensor> tensors = model_tensors(*one, DType::f32);
  const CapturedLog log;
  (void)quantize_model(*one, tensors, rules("autoround", "int3_weight_only_g32"));
  EXPECT_THAT(log.text(), ::testing::HasSubstr("no calibration tokens reach this expert"));
  int experts = 0;
  for (const ModelTensor& tensor : tensors) experts += tensor.quantized != nullptr && tensor.parameter->experts > 0;
  EXPECT_EQ(experts, 2 * 4 * 3);
}

TEST_F(AutoRound, ExpertsWithTokensAreTuned) {
  const auto loss = [&](std::string_view method) {
    const auto quantized = model(DType::f32, kExperts), whole = model(DType::f32, kExperts);
    std::vector<ModelTensor> tensors = model_tensors(*quantized, DType::f32);
    QuantizationRules only = rules(method, "int3_weight_only_g32");
    only.exclude = {"lm_head", "*.self_attn.*"};
    (void)quantize_model(*quantized, tensors, only);
    double sum = 0;
    const Tensor a = states(*quantized).front(), b = states(*whole).front();
    for (std::int64_t i = 0; i < a.numel(); ++i) sum += std::pow(a.data<float>()[i] - b.data<float>()[i], 2);
    return sum;
  };
  EXPECT_LT(loss("autoround"), 0.8 * loss("mse"));
}

TEST_F(AutoRound, OutputsThatAreNotFiniteAreAnError) {
  const auto one = model();
  for (nn::Parameter* parameter : one->parameters())
    if (parameter->name == "model.layers.1.post_attention_layernorm.weight")
      parameter->variable.value().data<float>()[3] = std::numeric_limits<float>::infinity();
  std::vector<ModelTensor> tensors = model_tensors(*one, DType::f32);
  expect_failure(ErrorCode::nonfinite, "model.layers.1",
                 [&] { (void)quantize_model(*one, tensors, rules("autoround", "int3_weight_only_g32")); });
}

TEST_F(AutoRound, SchemesWithoutRuleAreRefusedByName) {
  const auto one = model();
  std::vector<ModelTensor> tensors = model_tensors(*one, DType::f32);
  expect_failure(ErrorCode::bad_config, "AutoRound has no rule for GGUF's blocks",
                 [&] { (void)quantize_model(*one, tensors, rules("autoround", "q4_0")); });
}

}  // namespace
}  // namespace quench
