// Generation through KV caches of codes on a GPU, where the pass of a token is captured.

#include <gtest/gtest.h>

#include "core/device/call_counter.h"
#include "core/tensor/host_copy.h"
#include "tests/cuda/gpu.h"
#include "train/evaluation/scoring.h"
#include "train/generation/batch_generator.h"
#include "train/generation/decoder.h"

namespace quench {
namespace {

using testing::kGpu;
constexpr std::int64_t kVocabulary = 40;

struct SmallModel {
  SmallModel(DType dtype, Device device, const KvFormat* format)
      : lm(nn::parse_model_config(
               Json::parse(R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 256, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "initializer_range": 0.05, "max_position_embeddings": 2200})"),
               "config.json"),
           nn::ParameterOptions{.dtype = dtype, .device = device}) {
    lm.initialize(3);
    lm.set_kv_cache({.format = format, .scales = {}});
  }
  nn::CausalLm lm;
};

std::vector<std::int32_t> text(std::int64_t length) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back(static_cast<std::int32_t>((i * i + 3 * i) % kVocabulary));
  return ids;
}

// Captured single tokens after a prompt, through two captures.
TEST(CudaQuantizedCache, CapturedPassesGiveTheLogitsOfTheCpu) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const KvFormat& format : kv_formats()) {
      SCOPED_TRACE(fmt::format("{} {}", to_string(dtype), format.name));
      const SmallModel on_cpu(dtype, Device{}, &format), on_gpu(dtype, kGpu, &format);
      Decoder expected(on_cpu.lm, 1100), decoder(on_gpu.lm, 1100);
      const std::vector<std::int32_t> ids = text(1060);
      const std::span<const std::int32_t> all = ids;
      (void)expected.logits(all.first(1000));
      (void)decoder.logits(all.first(1000));
      const std::int64_t before = call_count("generation.captured");
      for (std::size_t i = 1000; i < ids.size(); ++i) {
        const Tensor want = expected.logits(all.subspan(i, 1));
        const HostCopy got(decoder.logits(all.subspan(i, 1)));
        for (std::int64_t t = 0; t < kVocabulary; ++t)
          ASSERT_NEAR(got.get().data<float>()[t], want.data<float>()[t], dtype == DType::f32 ? 5e-3 : 5e-2)
              << "token " << i << ", logit " << t;
      }
      EXPECT_EQ(call_count("generation.captured") - before, 59);
    }
}

TEST(CudaQuantizedCache, TextsSideBySideAreThoseOfSingleOnes) {
  for (const KvFormat& format : kv_formats()) {
    const SmallModel model(DType::f32, kGpu, &format);
    const std::vector<BatchPrompt> prompts = {{text(5), 12}, {text(30), 8}, {text(3), 20}};
    GenerationOptions options{.sampling = {.temperature = 0}};
    generate_batch(model.lm, prompts, options, 2, [&](std::size_t i, const GenerationResult& result) {
      options.max_new_tokens = prompts[i].max_new_tokens;
      EXPECT_EQ(result.tokens, generate(model.lm, prompts[i].tokens, options).tokens) << format.name << " " << i;
    });
  }
}

TEST(CudaQuantizedCache, ScoresAreThoseOfTheCpu) {
  const std::vector<std::int32_t> ids = text(300);
  const auto score = [&](const nn::CausalLm& model) {
    WindowScorer scorer(model);
    scorer.add({.inputs = {ids.begin(), ids.end() - 1}, .targets = {ids.begin() + 1, ids.end()}, .first_target = 1}, 0);
    return scorer.finish();
  };
  for (const KvFormat& format : kv_formats()) {
    const SmallModel on_cpu(DType::f32, Device{}, &format), on_gpu(DType::f32, kGpu, &format);
    const double expected = score(on_cpu.lm);
    EXPECT_NEAR(score(on_gpu.lm), expected, 1e-3 * expected) << format.name;
  }
}

}  // namespace
}  // namespace quench
