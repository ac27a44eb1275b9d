// Token by token on a GPU, where the pass of a token is captured and launched again.

#include "train/generation/decoder.h"

#include <gtest/gtest.h>

#include "core/device/call_counter.h"
#include "core/tensor/host_copy.h"
#include "tests/cuda/gpu.h"
#include "train/generation/generator.h"

namespace quench {
namespace {

using testing::kGpu;
constexpr std::int64_t kVocabulary = 40, kContext = 2200;

nn::ModelConfig tiny_config() {
  return nn::parse_model_config(
      Json::parse(R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 2, "initializer_range": 0.1,
        "max_position_embeddings": 2200})"),
      "config.json");
}

struct TinyModel {
  explicit TinyModel(Device device) : lm(tiny_config(), nn::ParameterOptions{.device = device}) { lm.initialize(3); }
  nn::CausalLm lm;
};

std::vector<std::int32_t> text(std::int64_t length) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < length; ++i) ids.push_back(static_cast<std::int32_t>((i * i + 3 * i) % kVocabulary));
  return ids;
}

// Through two captures: for up to 1,024 keys, and for more.
TEST(CudaDecoder, CapturedPassesGiveTheLogitsOfTheCpu) {
  const TinyModel on_cpu(Device{}), on_gpu(kGpu);
  Decoder expected(on_cpu.lm, kContext), decoder(on_gpu.lm, kContext);
  const std::vector<std::int32_t> ids = text(1100);
  const std::span<const std::int32_t> all = ids;
  (void)expected.logits(all.first(3));
  (void)decoder.logits(all.first(3));
  const std::int64_t before = call_count("generation.captured");
  for (std::size_t i = 3; i < ids.size(); ++i) {
    const Tensor want = expected.logits(all.subspan(i, 1));
    const HostCopy got(decoder.logits(all.subspan(i, 1)));
    for (std::int64_t t = 0; t < kVocabulary; ++t)
      ASSERT_NEAR(got.get().data<float>()[t], want.data<float>()[t], 2e-4) << "token " << i << ", logit " << t;
  }
  EXPECT_EQ(call_count("generation.captured") - before, 1100 - 3 - 1);  // the first one runs as it comes
}

// Several tokens at once between single ones: the captured pass continues after them.
TEST(CudaDecoder, PassesOfSeveralTokensMayComeBetween) {
  const TinyModel model(kGpu);
  const std::vector<std::int32_t> ids = text(40);
  const std::span<const std::int32_t> all = ids;
  Decoder whole(model.lm, 40), parts(model.lm, 40);
  const HostCopy want(whole.logits(all));
  std::size_t done = 0;
  Tensor last;
  for (const std::size_t n : {5, 1, 1, 1, 7, 1, 1, 20, 2, 1}) {
    last = parts.logits(all.subspan(done, n));
    done += n;
  }
  ASSERT_EQ(done, ids.size());
  const HostCopy got(last);
  for (std::int64_t t = 0; t < kVocabulary; ++t)
    EXPECT_NEAR(got.get().data<float>()[t], want.get().data<float>()[t], 2e-4) << t;
  EXPECT_THROW((void)parts.logits(all.first(1)), Error);
}

TEST(CudaDecoder, TextsMatchCpu) {
  const TinyModel on_cpu(Device{}), on_gpu(kGpu);
  const std::vector<std::int32_t> prompt = text(6);
  for (const double temperature : {0.0, 1.0}) {
    const GenerationOptions options{.max_new_tokens = 60, .sampling = {.temperature = temperature, .seed = 5}};
    EXPECT_EQ(generate(on_gpu.lm, prompt, options).tokens, generate(on_cpu.lm, prompt, options).tokens);
  }
}

// A longer pass of the model replaces its RoPE tables; a captured pass keeps those that it reads.
TEST(CudaDecoder, CapturedPassesKeepTheirRopeTables) {
  const std::vector<std::int32_t> ids = text(40), many = text(1500);
  const std::span<const std::int32_t> all = ids;
  const auto run = [&](bool disturbed) {
    const TinyModel model(kGpu);
    Decoder decoder(model.lm, 40);
    for (std::size_t i = 0; i < 10; ++i) (void)decoder.logits(all.subspan(i, 1));
    std::vector<Tensor> reused;
    if (disturbed) {
      Decoder longer(model.lm, kContext);
      (void)longer.logits(many);
      for (int i = 0; i < 64; ++i) reused.push_back(Tensor::zeros({64 << (i % 6), 4}, DType::f32, kGpu));
    }
    std::vector<float> logits;
    for (std::size_t i = 10; i < ids.size(); ++i) {
      const HostCopy got(decoder.logits(all.subspan(i, 1)));
      const auto* values = got.get().data<float>();
      logits.insert(logits.end(), values, values + kVocabulary);
    }
    return logits;
  };
  EXPECT_EQ(run(true), run(false));
}

// Each has tensors of its own, which nothing else may be given while it lives.
TEST(CudaDecoder, TwoDecodersOfOneModelDoNotDisturbEachOther) {
  const TinyModel model(kGpu);
  const std::vector<std::int32_t> ids = text(30);
  const std::span<const std::int32_t> all = ids;
  Decoder alone(model.lm, 30), first(model.lm, 30), second(model.lm, 30);
  std::vector<float> want;
  for (std::size_t i = 0; i < 30; ++i) {
    const HostCopy logits(alone.logits(all.subspan(i, 1)));
    want.push_back(logits.get().data<float>()[i]);
  }
  for (std::size_t i = 0; i < 30; ++i) {
    const HostCopy a(first.logits(all.subspan(i, 1)));
    const Tensor filler = Tensor::zeros({1 << 16}, DType::f32, kGpu);  // memory in between
    const HostCopy b(second.logits(all.subspan(i, 1)));
    EXPECT_EQ(a.get().data<float>()[i], want[i]) << i;
    EXPECT_EQ(b.get().data<float>()[i], want[i]) << i;
  }
}

}  // namespace
}  // namespace quench
