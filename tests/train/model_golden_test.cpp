// The decoder against Hugging Face Transformers: logits, loss, gradients, AdamW steps and greedy text of tiny random
// checkpoints, in f32.

#include <gtest/gtest.h>

#include <cstring>

#include "autograd/tape.h"
#include "core/ops/cross_entropy.h"
#include "core/ops/global_norm.h"
#include "core/safetensors.h"
#include "nn/optim/adamw.h"
#include "tests/testing.h"
#include "train/generation/generator.h"
#include "train/hf/model_folder.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

std::vector<float> read_f32(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry& entry = reader.at(name);
  std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
  reader.read(entry, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<std::int32_t> read_ids(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry& entry = reader.at(name);
  std::vector<std::int64_t> raw(static_cast<std::size_t>(entry.shape.numel()));
  reader.read(entry, std::as_writable_bytes(std::span(raw)));
  return {raw.begin(), raw.end()};
}

class ModelGolden : public ::testing::TestWithParam<const char*> {
 protected:
  ModelGolden()
      : folder_(testing::golden_dir() / "models" / GetParam()),
        reference_(folder_ / "reference.safetensors"),
        model_(read_model_config(folder_), nn::ParameterOptions{}) {
    load_weights(model_, folder_);
    const Shape shape = reference_.at("input_ids").shape;
    batch_ = shape[0];
    length_ = shape[1];
    ids_ = Tensor::from_values<std::int32_t>({batch_ * length_}, read_ids(reference_, "input_ids"));
    std::vector<std::int32_t> labels = read_ids(reference_, "labels");
    for (std::int64_t i = 0; i < batch_ * length_; ++i) {
      const bool last = (i + 1) % length_ == 0;
      labels[static_cast<std::size_t>(i)] = last ? kIgnoreLabel : labels[static_cast<std::size_t>(i + 1)];
      valid_ += labels[static_cast<std::size_t>(i)] == kIgnoreLabel ? 0 : 1;
    }
    labels_ = Tensor::from_values<std::int32_t>({batch_ * length_}, labels);
  }

  [[nodiscard]] nn::ForwardContext context() const {
    std::vector<SequenceRange> rows;
    for (std::int64_t b = 0; b < batch_; ++b) rows.push_back({b * length_, length_, b * length_, length_});
    return model_.make_context(rows, batch_ * length_);
  }

  // Loss of the batch; gradients are left in the parameters.
  float loss_and_gradients(autograd::Recompute recompute = autograd::Recompute::none) {
    nn::ForwardContext shared = context();
    shared.recompute = recompute;
    autograd::Tape tape(recompute);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model_.loss(ids_, labels_, shared, 1.0f / static_cast<float>(valid_));
    }
    tape.backward(loss);
    return *loss.value().data<float>();
  }

  fs::path folder_;
  SafetensorsReader reference_;
  nn::CausalLm model_;
  std::int64_t batch_ = 0, length_ = 0, valid_ = 0;
  Tensor ids_, labels_;
};

TEST_P(ModelGolden, Logits) {
  const autograd::NoGrad no_grad;
  const Tensor logits = model_.logits(model_.hidden(ids_, context()));
  const std::vector<float> expected = read_f32(reference_, "logits");
  EXPECT_LT(testing::relative_l2(std::span<const float>(logits.data<float>(), expected.size()),
                                 std::span<const float>(expected)),
            1e-5);
}

TEST_P(ModelGolden, LossAndEveryGradient) {
  for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    for (nn::Parameter* p : model_.parameters()) p->variable.gradient()->reset();
    EXPECT_NEAR(loss_and_gradients(level), read_f32(reference_, "loss")[0], 1e-6);
    std::size_t compared = 0;
    for (const nn::Parameter* p : model_.parameters()) {
      const Tensor gradient = p->variable.grad();
      ASSERT_TRUE(gradient.defined()) << p->name;
      for (const nn::ParameterPiece& piece : p->pieces) {
        const std::vector<float> expected = read_f32(reference_, "grad." + piece.hf_name);
        const Tensor rows = gradient.narrow(0, piece.row_begin, piece.rows);
        ASSERT_EQ(rows.numel(), static_cast<std::int64_t>(expected.size())) << piece.hf_name;
        EXPECT_LT(
            testing::relative_l2(std::span<const float>(static_cast<const float*>(rows.raw_data()), expected.size()),
                                 std::span<const float>(expected)),
            1e-4)
            << piece.hf_name;
        ++compared;
      }
    }
    std::size_t stored = 0;
    for (const SafetensorsEntry& entry : reference_.header().entries) stored += entry.name.starts_with("grad.") ? 1 : 0;
    EXPECT_EQ(compared, stored);
  }
}

TEST_P(ModelGolden, EightAdamWSteps) {
  const std::vector<float> expected = read_f32(reference_, "adamw_losses");
  ASSERT_EQ(expected.size(), 8u);
  nn::AdamW optimizer(model_.parameters(), {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  const Tensor square = Tensor::empty({1}, DType::f64);
  const Tensor norm = Tensor::empty({1}, DType::f32), scale = Tensor::empty({1}, DType::f32);
  for (std::size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(loss_and_gradients(), expected[step], 1e-4) << "step " << step;
    optimizer.squared_grad_norm(square);
    clip_scale({.squared_norm = square, .max_norm = 1.0f, .norm = norm, .scale = scale});
    optimizer.step(1e-3, static_cast<std::int64_t>(step) + 1, scale);
    optimizer.zero_grad();
  }
}

TEST_P(ModelGolden, GreedyTokensThroughTheKeyValueCache) {
  const std::vector<std::int32_t> expected = read_ids(reference_, "greedy");
  const Shape shape = reference_.at("greedy").shape;
  constexpr std::size_t kPrompt = 12;
  for (std::int64_t row = 0; row < shape[0]; ++row) {
    const std::span<const std::int32_t> ids(expected.data() + row * shape[1], static_cast<std::size_t>(shape[1]));
    GenerationResult result = generate(model_, ids.first(kPrompt),
                                       {.max_new_tokens = shape[1] - static_cast<std::int64_t>(kPrompt),
                                        .stop_tokens = model_.config().eos_token_ids});
    // Transformers fills a row that ended with its padding id, here the end-of-sequence id.
    if (result.stopped) result.tokens.resize(static_cast<std::size_t>(shape[1]) - kPrompt, result.tokens.back());
    EXPECT_EQ(result.tokens, std::vector<std::int32_t>(ids.begin() + kPrompt, ids.end())) << "row " << row;
  }
}

TEST_P(ModelGolden, SavedFolderLoadsToTheSameBits) {
  const testing::TempDir temp;
  save_model_folder(model_, temp / "copy", {.dtype = DType::f32, .max_shard_bytes = 40'000, .carry_from = folder_});
  EXPECT_TRUE(fs::exists(temp / "copy" / "model.safetensors.index.json"));
  nn::CausalLm copy(read_model_config(temp / "copy"), nn::ParameterOptions{});
  load_weights(copy, temp / "copy");
  const auto a = model_.parameters(), b = copy.parameters();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor x = a[i]->variable.value(), y = b[i]->variable.value();
    EXPECT_EQ(0, std::memcmp(x.raw_data(), y.raw_data(), x.nbytes())) << a[i]->name;
  }
  const Json config = Json::parse_file(temp / "copy" / "config.json");
  EXPECT_NE(config.find("rope_theta"), nullptr) << "for readers before Transformers 5";
  EXPECT_NE(config.find("rope_parameters"), nullptr) << "for Transformers 5";
}

INSTANTIATE_TEST_SUITE_P(Families, ModelGolden, ::testing::Values("llama", "llama31_tied", "qwen2", "qwen3"),
                         [](const auto& model) { return std::string(model.param); });

}  // namespace
}  // namespace quench
