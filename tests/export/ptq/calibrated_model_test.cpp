// Calibrated quantization of a small model: the layer walk, fused scales, static input scales.

#include <cmath>
#include <map>

#include "autograd/functions.h"
#include "export/ptq/fuse_scales.h"
#include "export/ptq/layer_walk.h"
#include "export/ptq/quantize_model.h"
#include "tests/export/export_testing.h"
#include "tests/train/metrics/captured_log.h"

namespace quench {
namespace {

using namespace testing;

class CalibratedModel : public ::testing::Test {
 protected:
  CalibratedModel() : model_(config(), {.dtype = DType::f32, .trainable = false}) {
    model_.initialize(5);
    for (int s = 0; s < 6; ++s) {
      sequences_.emplace_back();
      for (int i = 0; i < 40; ++i) sequences_.back().push_back((i * i + 7 * s) % 96);
    }
  }

  static nn::ModelConfig config(std::string_view type = "llama") {
    Json json = Json::parse(R"({"vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "initializer_range": 0.15, "eos_token_id": 2})");
    json.set("model_type", Json(type));
    return nn::parse_model_config(json, "config.json");
  }

  Tensor hidden() { return hidden(model_); }
  Tensor hidden(const nn::CausalLm& model) {
    const autograd::NoGrad no_grad;
    std::vector<std::int32_t> ids;
    std::vector<SequenceRange> ranges;
    for (const auto& sequence : sequences_) {
      const auto begin = static_cast<std::int64_t>(ids.size()), length = static_cast<std::int64_t>(sequence.size());
      ranges.push_back({begin, length, begin, length});
      ids.insert(ids.end(), sequence.begin(), sequence.end());
    }
    const auto tokens = static_cast<std::int64_t>(ids.size());
    return model.hidden(Tensor::from_values<std::int32_t>({tokens}, ids), model.make_context(ranges, tokens)).value();
  }

  static double distance(const Tensor& a, const Tensor& b) {
    double difference = 0, norm = 0;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const double x = a.data<float>()[i], y = b.data<float>()[i];
      difference += (x - y) * (x - y);
      norm += y * y;
    }
    return std::sqrt(difference / norm);
  }

  // Large channels of a norm's output, small weights that read them: the same model.
  static void add_outliers(nn::CausalLm& model) {
    const ModuleMap modules = modules_of(model);
    for (std::int64_t layer = 0; layer < 2; ++layer)
      for (const ScaleFusion& fusion : scale_fusions_of_layer(modules, model.config(), layer, false)) {
        const Tensor factors = Tensor::empty({fusion.consumer->weight().global_shape[1]}, DType::f32);
        for (std::int64_t c = 0; c < factors.numel(); ++c) factors.data<float>()[c] = c % 16 == 3 ? 0.01f : 1.0f;
        (void)fuse_scales(fusion, factors);
      }
  }

  // Error of the final states, when the model has been quantized so.
  double loss_of(std::string_view method, std::string_view scheme, bool outliers = false) {
    model_.initialize(5);
    const Tensor before = hidden();
    nn::CausalLm fresh(config(), {.dtype = DType::f32, .trainable = false});
    fresh.initialize(5);
    if (outliers) add_outliers(fresh);
    std::vector<ModelTensor> tensors = model_tensors(fresh, DType::f32);
    const auto data = std::make_shared<CalibrationData>(CalibrationData{sequences_, "test"});
    const QuantizationRules rules{.scheme = find_scheme(scheme),
                                  .exclude = {"lm_head"},
                                  .quantizer = &require_quantizer(method, "method"),
                                  .calibration = data};
    const auto report = quantize_model(fresh, tensors, rules);
    EXPECT_EQ(report.size(), 15u);
    LayerWalk walk(fresh, sequences_);
    for (std::int64_t i = walk.layers(); i > 0; --i) walk.advance();
    return distance(walk.final_states().front(), before);
  }

  nn::CausalLm model_;
  std::vector<std::vector<std::int32_t>> sequences_;
};

TEST_F(CalibratedModel, LayerWalkMatchesForwardPass) {
  LayerWalk walk(model_, sequences_);
  ASSERT_EQ(walk.layers(), 2);
  InputObservers observers(false);
  walk.observe(observers);
  walk.advance();
  walk.advance();
  EXPECT_LT(distance(walk.final_states().front(), hidden()), 1e-6);
}

// Phi-3 and GLM-4 hold projections as one.
TEST_F(CalibratedModel, FusedScalesChangeNoOutput) {
  for (const char* type : {"llama", "phi3", "glm4"}) {
    SCOPED_TRACE(type);
    nn::CausalLm model(config(type), {.dtype = DType::f32, .trainable = false});
    model.initialize(5);
    const Tensor before = hidden(model);
    const ModuleMap modules = modules_of(model);
    for (std::int64_t layer = 0; layer < 2; ++layer) {
      EXPECT_EQ(scale_fusions_of_layer(modules, model.config(), layer, false).size(), 2u);
      const auto fusions = scale_fusions_of_layer(modules, model.config(), layer, true);
      ASSERT_EQ(fusions.size(), 4u);
      for (const ScaleFusion& fusion : fusions) {
        const std::int64_t columns = fusion.consumer->weight().global_shape[1];
        const Tensor factors = Tensor::empty({columns}, DType::f32);
        for (std::int64_t c = 0; c < columns; ++c) {
          const std::int64_t place = fusion.rows.empty() ? c : fusion.rows[static_cast<std::size_t>(c)];
          factors.data<float>()[c] = 0.3f + 0.1f * static_cast<float>(place % 13);
        }
        (void)fuse_scales(fusion, factors);
      }
    }
    EXPECT_LT(distance(hidden(model), before), 1e-5);
  }
}

TEST_F(CalibratedModel, MethodsLoseLessThanRoundToNearest) {
  const double nearest = loss_of("rtn", "int3_weight_only_g32");
  EXPECT_LT(loss_of("gptq", "int3_weight_only_g32"), 0.95 * nearest);
  EXPECT_LT(loss_of("awq", "int3_weight_only_g32"), nearest);
}

// Weights that read large inputs are small, and lost in the steps of a row.
TEST_F(CalibratedModel, AwqKeepsWeightsBehindLargeInputs) {
  EXPECT_LT(loss_of("awq", "int4_weight_only", true), 0.7 * loss_of("rtn", "int4_weight_only", true));
}

TEST_F(CalibratedModel, SmoothQuantTakesOutliersFromInputs) {
  const double nearest = loss_of("rtn", "int8dyn_int8", true);
  EXPECT_GT(nearest, 3 * loss_of("rtn", "int8dyn_int8"));
  EXPECT_LT(loss_of("smoothquant", "int8dyn_int8", true), 0.5 * nearest);
  EXPECT_LT(loss_of("smoothquant_gptq", "int8dyn_int8", true), 0.5 * nearest);
}

TEST_F(CalibratedModel, StaticInputsHaveTheScaleOfTheLargest) {
  std::vector<ModelTensor> tensors = model_tensors(model_, DType::f32);
  const auto data = std::make_shared<CalibrationData>(CalibrationData{sequences_, "test"});
  QuantizationRules rules{.scheme = find_scheme("float8_static"), .calibration = data};
  (void)quantize_model(model_, tensors, rules);
  for (const ModelTensor& tensor : tensors)
    if (tensor.quantized != nullptr) {
      ASSERT_TRUE(tensor.quantized->input_scale.defined()) << tensor.name;
      EXPECT_GT(tensor.quantized->input_scale.data<float>()[0], 1e-5f);
    }
  rules.calibration = nullptr;
  EXPECT_THROW((void)quantize_model(model_, tensors, rules), Error);
}

// An expert that no token reaches takes the largest input of the others.
TEST_F(CalibratedModel, ExpertsWithoutTokensHaveAScaleOfInputs) {
  for (const char* scheme : {"float8_static", "nvfp4"}) {
    SCOPED_TRACE(scheme);
    Json json = Json::parse(R"({"model_type": "mixtral", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 64, "initializer_range": 0.15, "num_local_experts": 4, "num_experts_per_tok": 1,
        "eos_token_id": 2})");
    nn::CausalLm model(nn::parse_model_config(json, "config.json"), {.dtype = DType::f32, .trainable = false});
    model.initialize(5);
    std::vector<ModelTensor> tensors = model_tensors(model, DType::f32);
    const QuantizationRules rules{
        .scheme = find_scheme(scheme),
        .calibration = std::make_shared<CalibrationData>(CalibrationData{{{7, 7, 7}}, "one token"})};
    const CapturedLog log;
    (void)quantize_model(model, tensors, rules);
    std::map<std::string, std::vector<float>> scales;  // values of experts, by projection
    for (const ModelTensor& tensor : tensors)
      if (tensor.quantized != nullptr && tensor.parameter->experts > 0)
        scales[tensor.layer.substr(tensor.layer.rfind('.'))].push_back(tensor.quantized->input_scale.data<float>()[0]);
    ASSERT_EQ(scales.size(), 3u);
    for (const auto& [projection, values] : scales) {
      ASSERT_EQ(values.size(), 4u);
      EXPECT_GT(values[0], 1e-6f) << projection;
      EXPECT_LT(values[0], 0.5f) << projection;
      for (const float value : values) EXPECT_EQ(value, values[0]) << projection;
    }
    EXPECT_EQ(scales[".w1"], scales[".w3"]);
    EXPECT_THAT(log.text(),
                ::testing::HasSubstr("its input scale follows from the largest input of the layer's other"));
  }
}

}  // namespace
}  // namespace quench
