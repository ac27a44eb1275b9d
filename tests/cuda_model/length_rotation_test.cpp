// RoPE that depends on the length (longrope, dynamic) on a GPU: losses of a pass of several lengths are those of passes
// of one sequence each.

#include <gmock/gmock.h>

#include <fmt/format.h>

#include "autograd/tape.h"
#include "nn/decoder/causal_lm.h"
#include "tests/cuda/gpu.h"

namespace quench::nn {
namespace {

std::vector<float> losses(const CausalLm& model, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> ids, labels;
  std::vector<SequenceRange> sequences;
  for (const std::int64_t length : lengths) {
    sequences.push_back({std::ssize(ids), length, std::ssize(ids), length});
    for (std::int64_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<std::int32_t>((7 * i + length) % 40));
      labels.push_back(static_cast<std::int32_t>((7 * i + 7 + length) % 40));
    }
  }
  const std::int64_t tokens = std::ssize(ids);
  const Device device = model.options().device;
  const autograd::NoGrad no_grad;
  Tensor all;
  (void)model.loss(Tensor::from_values<std::int32_t>({tokens}, ids).to(device),
                   Tensor::from_values<std::int32_t>({tokens}, labels).to(device),
                   model.make_context(sequences, tokens), 1.0f, {}, &all);
  const Tensor host = all.to(Device{});
  return {host.data<float>(), host.data<float>() + tokens};
}

TEST(CudaLengthRotation, LossesOfASequenceDoNotDependOnItsNeighbours) {
  const std::vector<std::int64_t> lengths{9, 30, 12, 13, 30, 21};
  for (const char* scaling :
       {R"("model_type": "phi3", "original_max_position_embeddings": 12, "max_position_embeddings": 64, "rope_scaling":
           {"type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [1, 3, 9, 27, 1, 1, 1, 1]})",
        R"("model_type": "llama", "max_position_embeddings": 12, "rope_scaling":
           {"rope_type": "dynamic", "factor": 4.0})"}) {
    SCOPED_TRACE(scaling);
    const ModelConfig config =
        parse_model_config(Json::parse(fmt::format(R"({{"vocab_size": 40, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3, {}}})",
                                                   scaling)),
                           "config.json");
    CausalLm model(config, {.device = quench::testing::kGpu});
    model.initialize(7);
    CausalLm on_cpu(config, {});
    on_cpu.initialize(7);
    std::vector<float> alone;
    for (const std::int64_t length : lengths) {
      const std::vector<float> one = losses(model, {length});
      alone.insert(alone.end(), one.begin(), one.end());
    }
    EXPECT_THAT(losses(model, lengths), ::testing::Pointwise(::testing::FloatNear(1e-3f), alone));
    EXPECT_THAT(alone, ::testing::Pointwise(::testing::FloatNear(1e-3f), losses(on_cpu, lengths)));
  }
}

}  // namespace
}  // namespace quench::nn
