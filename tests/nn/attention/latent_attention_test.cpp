#include "nn/attention/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/ops/quantize/quantize.h"
#include "nn/decoder/causal_lm.h"

namespace quench::nn {
namespace {

// Asks for float8 codes in place of values, and computes with them.
class CodesReader final : public LinearObserver {
 public:
  CodesReader(std::shared_ptr<const LinearKernel> kernel, int& unstored)
      : LinearObserver(std::move(kernel)), unstored_(unstored) {}
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request(const Parameter&) const override {
    static constexpr float kScale[] = {64.0f};
    autograd::QuantOutputRequest request;
    request.amax = true;
    request.scale = Tensor::from_values<float>({}, kScale);
    request.value_needed = false;
    return request;
  }

 private:
  [[nodiscard]] Variable observe(const Variable& x, const Parameter& weight, const Weight& bias) const override {
    const QuantTensor& codes = x.fused().quant_outputs().codes;
    EXPECT_TRUE(codes.defined());
    unstored_ += x.fused().form() == autograd::ValueForm::codes_only ? 1 : 0;
    return wrapped().apply(Variable(dequantize(codes, DType::f32)), weight, bias);
  }
  int& unstored_;
};

// The norms of queries and latents write what their one reader takes: codes, and no values next to them.
TEST(LatentAttention, NormsWriteCodesWithoutValues) {
  const ModelConfig config = parse_model_config(Json::parse(R"({"model_type": "deepseek_v3", "vocab_size": 48,
      "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
      "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
      "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 1,
      "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1})"),
                                                "config.json");
  CausalLm model(config, {});
  model.initialize(3);
  std::map<std::string, int> unstored;
  model.visit([&](const std::string& name, Module& module) {
    auto* linear = dynamic_cast<Linear*>(&module);
    if (linear != nullptr && (name.ends_with("q_b_proj") || name.ends_with("kv_b_proj")))
      linear->set_kernel(std::make_shared<CodesReader>(linear->shared_kernel(), unstored[name]));
  });
  ASSERT_EQ(unstored.size(), 2u);
  std::vector<std::int32_t> ids(8);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(5 * i);
  const autograd::NoGrad no_grad;
  const Tensor hidden =
      model.hidden(Tensor::from_values<std::int32_t>({8}, ids), model.make_context({{0, 8, 0, 8}}, 8)).value();
  EXPECT_TRUE(std::isfinite(hidden.data<float>()[0]));
  for (const auto& [name, count] : unstored) EXPECT_EQ(count, 1) << name;
}

}  // namespace
}  // namespace quench::nn
