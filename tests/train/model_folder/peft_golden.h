#pragma once
// Adapters of PEFT that there are figures of: logits, loss, gradients.

#include <gmock/gmock.h>

#include "autograd/tape.h"
#include "core/ops/loss/cross_entropy.h"
#include "tests/train/model_folder/golden_model.h"
#include "train/model_folder/peft_folder.h"

namespace quench::testing {

inline std::filesystem::path adapter_folder() {
  return golden_dir() / "models" / "llama_lora";
}

inline std::filesystem::path dora_folder() {
  return reference_dir() / "models" / "llama_dora";
}

inline std::filesystem::path saved_folder(const std::string& name = "llama_saved") {
  return reference_dir() / "models" / name;
}

// The adapters of PEFT that there are figures of.
class PeftGolden : public ::testing::Test {
 protected:
  // `new_tokens`: rows beyond the base's.
  explicit PeftGolden(const std::filesystem::path& adapter = adapter_folder(), const std::string& base = "llama",
                      std::int64_t new_tokens = 0)
      : reference_(adapter / "reference.safetensors"), model_(grown_config(base, new_tokens), {}) {
    load_weights(model_, golden_dir() / "models" / base, false, {}, NewRows());
    const Shape shape = reference_.at("input_ids").shape;
    batch_ = shape[0];
    length_ = shape[1];
    const std::vector<std::int32_t> ids = read_ids(reference_, "input_ids");
    ids_ = Tensor::from_values<std::int32_t>({batch_ * length_}, ids);
    std::vector<std::int32_t> labels(ids.begin() + 1, ids.end());
    labels.push_back(kIgnoreLabel);
    for (std::int64_t b = 1; b <= batch_; ++b) labels[static_cast<std::size_t>(b * length_ - 1)] = kIgnoreLabel;
    labels_ = Tensor::from_values<std::int32_t>({batch_ * length_}, labels);
  }

  static nn::ModelConfig grown_config(const std::string& base, std::int64_t new_tokens) {
    nn::ModelConfig config = read_model_config(golden_dir() / "models" / base);
    config.vocab_size += new_tokens;
    config.source.set("vocab_size", config.vocab_size);
    return config;
  }

  [[nodiscard]] nn::ForwardContext context() const {
    std::vector<SequenceRange> rows;
    for (std::int64_t b = 0; b < batch_; ++b) rows.push_back({b * length_, length_, b * length_, length_});
    return model_.make_context(rows, batch_ * length_);
  }

  void expect_logits(const std::filesystem::path& folder);
  void expect_gradients(const std::filesystem::path& folder, std::size_t count);
  [[nodiscard]] double logits_error() const {
    const autograd::NoGrad no_grad;
    const Tensor logits = model_.logits(model_.hidden(ids_, context()));
    const std::vector<float> expected = read_f32(reference_, "logits");
    return relative_l2(std::span<const float>(logits.data<float>(), expected.size()), std::span<const float>(expected));
  }

  SafetensorsReader reference_;
  nn::CausalLm model_;
  std::int64_t batch_ = 0, length_ = 0;
  Tensor ids_, labels_;
};

inline void PeftGolden::expect_logits(const std::filesystem::path& folder) {
  const auto adapter = load_adapter(model_, folder, {});
  EXPECT_GT(logits_error(), 1e-3) << "of the model without its adapter";
  adapter->attach();
  EXPECT_LT(logits_error(), 1e-5);
  adapter->detach();
  EXPECT_GT(logits_error(), 1e-3);
  adapter->merge();
  EXPECT_LT(logits_error(), 1e-5);
}

inline void PeftGolden::expect_gradients(const std::filesystem::path& folder, std::size_t count) {
  const auto adapter = load_adapter(model_, folder, {});
  adapter->attach();
  recipes::freeze_base(model_);
  for (const auto level : {autograd::Recompute::none, autograd::Recompute::selective, autograd::Recompute::full}) {
    for (nn::Parameter* p : adapter->parameters()) p->variable.gradient()->reset();
    nn::ForwardContext shared = context();
    shared.recompute = level;
    autograd::Tape tape(level);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model_.loss(ids_, labels_, shared, 1.0f / static_cast<float>(batch_ * (length_ - 1)));
    }
    tape.backward(loss);
    EXPECT_NEAR(*loss.value().data<float>(), read_f32(reference_, "loss")[0], 1e-6);
    std::size_t compared = 0;
    for (const nn::Parameter* p : model_.parameters()) {
      EXPECT_EQ(p->variable.grad().defined(), p->adapter) << p->name;
      if (!p->adapter) continue;
      for (const nn::ParameterPiece& piece : p->pieces) {
        const std::vector<float> expected = read_f32(reference_, "grad." + piece.hf_name);
        const Tensor rows = p->variable.grad().narrow(0, piece.row_begin, piece.rows);
        EXPECT_LT(
            relative_l2(std::span<const float>(rows.data<float>(), expected.size()), std::span<const float>(expected)),
            1e-4)
            << piece.hf_name;
        ++compared;
      }
    }
    EXPECT_EQ(compared, count);
  }
}

}  // namespace quench::testing
