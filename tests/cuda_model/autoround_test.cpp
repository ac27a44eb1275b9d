// AutoRound on the GPU: forward, backward and steps of the parameters there.

#include <cmath>
#include <memory>

#include "export/ptq/layer_walk.h"
#include "export/ptq/quantize_model.h"
#include "tests/core/ops/op_testing.h"
#include "tests/cuda/gpu.h"

namespace quench {
namespace {

using namespace testing;

std::vector<std::vector<std::int32_t>> sequences() {
  std::vector<std::vector<std::int32_t>> made;
  for (int s = 0; s < 8; ++s) {
    made.emplace_back();
    for (int i = 0; i < 64; ++i) made.back().push_back((i * i + 7 * s) % 96);
  }
  return made;
}

std::unique_ptr<nn::CausalLm> model(DType dtype, Device device) {
  const Json json = Json::parse(R"({"model_type": "llama", "vocab_size": 96, "hidden_size": 128,
      "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "initializer_range": 0.15,
      "eos_token_id": 2})");
  auto made =
      std::make_unique<nn::CausalLm>(nn::parse_model_config(json, "config.json"),
                                     nn::ParameterOptions{.dtype = dtype, .device = device, .trainable = false});
  made->initialize(5);
  return made;
}

std::vector<double> states(nn::CausalLm& model) {
  const auto data = sequences();
  LayerWalk walk(model, data);
  for (std::int64_t i = walk.layers(); i > 0; --i) walk.advance();
  std::vector<double> all;
  for (const Tensor& one : walk.final_states()) {
    const std::vector<double> here = values(one.to(Device{}));
    all.insert(all.end(), here.begin(), here.end());
  }
  return all;
}

struct Outcome {
  double loss;  // squared distance of the final states from those of the unquantized model
  std::vector<std::uint8_t> codes;
};

Outcome quantized(std::string_view method, std::string_view scheme, DType dtype, Device device) {
  const auto one = model(dtype, device), whole = model(dtype, device);
  std::vector<ModelTensor> tensors = model_tensors(*one, dtype);
  (void)quantize_model(*one, tensors,
                       {.scheme = find_scheme(scheme),
                        .exclude = {"lm_head"},
                        .quantizer = &require_quantizer(method, "method"),
                        .options = {.iterations = 40, .batch_size = 4},
                        .calibration = std::make_shared<CalibrationData>(CalibrationData{sequences(), "test"})});
  Outcome made{};
  const std::vector<double> a = states(*one), b = states(*whole);
  for (std::size_t i = 0; i < a.size(); ++i) made.loss += (a[i] - b[i]) * (a[i] - b[i]);
  for (const ModelTensor& tensor : tensors)
    if (tensor.quantized != nullptr) {
      const auto* begin = static_cast<const std::uint8_t*>(tensor.quantized->codes.raw_data());
      made.codes.insert(made.codes.end(), begin, begin + tensor.quantized->codes.nbytes());
    }
  return made;
}

TEST(CudaAutoRound, LosesAsLittleAsOnTheCpu) {
  for (const char* scheme : {"int2_weight_only_g32", "int3_weight_only_g32_asym", "nvfp4_weight_only"}) {
    SCOPED_TRACE(scheme);
    const double here = quantized("autoround", scheme, DType::f32, Device{}).loss,
                 there = quantized("autoround", scheme, DType::f32, kGpu).loss,
                 nearest = quantized("rtn", scheme, DType::f32, Device{}).loss;
    EXPECT_LT(there, 0.85 * nearest);
    EXPECT_LT(std::abs(there - here), 0.15 * here);
  }
}

TEST(CudaAutoRound, RunsAreEqualBitForBit) {
  const Outcome first = quantized("autoround", "int3_weight_only_g32", DType::bf16, kGpu);
  EXPECT_FALSE(first.codes.empty());
  EXPECT_EQ(quantized("autoround", "int3_weight_only_g32", DType::bf16, kGpu).codes, first.codes);
}

}  // namespace
}  // namespace quench
