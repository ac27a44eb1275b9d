#include "export/formats/model_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/json/json.h"
#include "tests/testing.h"

namespace quench {
namespace {

// Files hold tensors in the order of their names. The experts of a layer are two parameters with a piece for each.
TEST(ModelTensors, BringEachParameterOfExpertsOnceInTheOrderOfNames) {
  const nn::ModelConfig config = nn::parse_model_config(
      Json::parse(R"({"model_type": "qwen3_moe", "vocab_size": 31, "hidden_size": 8, "intermediate_size": 12,
                      "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
                      "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 5,
                      "norm_topk_prob": true})"),
      "the test");
  nn::CausalLm model(config, {});
  model.initialize(3);
  std::map<const nn::Parameter*, int> brought;
  std::vector<ModelTensor> tensors = model_tensors(model, DType::f32, [&](const nn::Parameter& parameter) {
    ++brought[&parameter];
    return parameter.variable.value();
  });
  std::ranges::sort(tensors, {}, &ModelTensor::name);
  for (const ModelTensor& tensor : tensors) {
    const Tensor own = tensor.parameter->variable.value().narrow(0, tensor.piece->row_begin, tensor.piece->rows);
    const Tensor value = tensor.value();
    ASSERT_EQ(value.shape(), own.shape()) << tensor.name;
    EXPECT_TRUE(std::equal(value.data<float>(), value.data<float>() + value.numel(), own.data<float>())) << tensor.name;
  }
  int of_experts = 0;
  for (const nn::Parameter* parameter : model.parameters()) {
    EXPECT_GE(brought[parameter], 1) << parameter->name;
    if (parameter->experts == 0) continue;
    EXPECT_EQ(brought[parameter], 1) << parameter->name;
    ++of_experts;
  }
  EXPECT_EQ(of_experts, 4);
}

}  // namespace
}  // namespace quench
