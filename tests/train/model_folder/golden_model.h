#pragma once
// A golden checkpoint, its batch and its reference results, with the model on any device in f32 or bf16.

#include <gtest/gtest.h>

#include <memory>

#include "autograd/tape.h"
#include "core/ops/global_norm.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/safetensors/safetensors.h"
#include "nn/optim/adamw.h"
#include "tests/testing.h"
#include "train/generation/generator.h"
#include "train/model_folder/model_folder.h"

namespace quench::testing {

inline std::vector<float> read_f32(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry& entry = reader.at(name);
  std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
  reader.read(entry, std::as_writable_bytes(std::span(values)));
  return values;
}

inline std::vector<std::int32_t> read_ids(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry& entry = reader.at(name);
  std::vector<std::int64_t> raw(static_cast<std::size_t>(entry.shape.numel()));
  reader.read(entry, std::as_writable_bytes(std::span(raw)));
  return {raw.begin(), raw.end()};
}

// The folder of tests/reference: $QUENCH_REFERENCE_DIR or that of the source tree.
inline std::filesystem::path reference_dir() {
  if (const char* dir = std::getenv("QUENCH_REFERENCE_DIR"); dir != nullptr && *dir != '\0') return dir;
  return source_dir() / "tests" / "reference";
}

class GoldenModel {
 public:
  // `mtp`: with the layers of multi-token prediction that config.json declares.
  GoldenModel(const std::string& name, Device device, DType dtype = DType::f32, bool mtp = false)
      : folder(golden_dir() / "models" / name),
        reference(folder / "reference.safetensors"),
        model(read_config(folder, mtp), nn::ParameterOptions{.dtype = dtype, .grad_dtype = dtype, .device = device}) {
    load_weights(model, folder);
    const Shape shape = reference.at("input_ids").shape;
    batch = shape[0];
    length = shape[1];
    ids = Tensor::from_values<std::int32_t>({batch * length}, read_ids(reference, "input_ids")).to(device);
    std::vector<std::int32_t> shifted = read_ids(reference, "labels");
    for (std::int64_t i = 0; i < batch * length; ++i) {
      const bool last = (i + 1) % length == 0;
      shifted[static_cast<std::size_t>(i)] = last ? kIgnoreLabel : shifted[static_cast<std::size_t>(i + 1)];
      valid += last || shifted[static_cast<std::size_t>(i)] == kIgnoreLabel ? 0 : 1;
    }
    labels = Tensor::from_values<std::int32_t>({batch * length}, shifted).to(device);
  }

  static nn::ModelConfig read_config(const std::filesystem::path& folder, bool mtp) {
    nn::ModelConfig config = read_model_config(folder);
    if (mtp) config.mtp.layers = config.mtp.declared;
    return config;
  }

  [[nodiscard]] nn::ForwardContext context() const {
    std::vector<SequenceRange> rows;
    for (std::int64_t b = 0; b < batch; ++b) rows.push_back({b * length, length, b * length, length});
    return model.make_context(rows, batch * length);
  }

  // ||logits - reference|| / ||reference||.
  [[nodiscard]] double logits_error() const {
    const autograd::NoGrad no_grad;
    const Tensor logits = model.logits(model.hidden(ids, context())).to(Device{});
    const std::vector<float> expected = read_f32(reference, "logits");
    return relative_l2(std::span<const float>(logits.data<float>(), expected.size()), std::span<const float>(expected));
  }

  // Loss of the batch; gradients are left in the parameters.
  float loss_and_gradients(autograd::Recompute recompute = autograd::Recompute::none) {
    nn::ForwardContext shared = context();
    shared.recompute = recompute;
    autograd::Tape tape(recompute);
    autograd::Variable loss;
    {
      const autograd::TapeScope scope(tape);
      loss = model.loss(ids, labels, shared, 1.0f / static_cast<float>(valid));
    }
    tape.backward(loss);
    return *loss.value().to(Device{}).data<float>();
  }

  // Every gradient of the last loss_and_gradients() against the reference.
  void expect_gradients(double tolerance) const {
    std::size_t compared = 0;
    for (const nn::Parameter* p : const_cast<nn::CausalLm&>(model).parameters()) {
      if (!p->variable.requires_grad()) continue;  // the bias on a router's choice
      ASSERT_TRUE(p->variable.grad().defined()) << p->name;
      const Tensor gradient = p->variable.grad().to(Device{});
      const auto compare = [&](const std::string& name, const Tensor& rows) {
        const std::vector<float> expected = read_f32(reference, name);
        ASSERT_EQ(rows.numel(), static_cast<std::int64_t>(expected.size())) << name;
        EXPECT_LT(relative_l2(std::span<const float>(static_cast<const float*>(rows.raw_data()), expected.size()),
                              std::span<const float>(expected)),
                  tolerance)
            << name;
        ++compared;
      };
      // Transformers 5 has the experts' weights fused as we do, and stores gradients under names of its own.
      const std::string fused = "grad." + p->name, bare = stored_name(fused);
      if (reference.find("grad." + p->pieces.front().hf_name) == nullptr) {
        const std::string& name = reference.find(fused) != nullptr ? fused : bare;
        const bool turned = p->experts > 0 && model.config().experts.fused_storage;
        compare(name, turned ? as_stored(gradient, reference.at(name).shape,
                                         model.config().experts.interleaved_storage && p->pieces.size() > 1 &&
                                             p->name.find("gate_up") != std::string::npos)
                             : gradient);
        continue;
      }
      for (const nn::ParameterPiece& piece : p->pieces)
        compare("grad." + piece.hf_name, gradient.narrow(0, piece.row_begin, piece.rows));
    }
    std::size_t stored = 0;
    for (const SafetensorsEntry& entry : reference.header().entries) stored += entry.name.starts_with("grad.") ? 1 : 0;
    EXPECT_EQ(compared, stored);
  }

  // "grad.X.gate_up_proj" of its weight, "grad.X.gate_up_proj_bias" of its bias.
  static std::string stored_name(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    return name.substr(0, dot) + (name.ends_with(".bias") ? "_bias" : "");
  }

  // The rows of all experts [E * out, in], or their biases [E * out], in the orientation of a fused tensor [E, in,
  // out], where the columns of two parts may alternate.
  static Tensor as_stored(const Tensor& rows, const Shape& shape, bool interleaved) {
    const std::int64_t in = rows.rank() == 1 ? 1 : rows.size(1), out = rows.size(0) / shape[0];
    const auto column = [&](std::int64_t c) { return !interleaved ? c : c < out / 2 ? 2 * c : 2 * (c - out / 2) + 1; };
    const Tensor turned = Tensor::empty(shape, DType::f32);
    for (std::int64_t row = 0; row < rows.size(0); ++row)
      for (std::int64_t i = 0; i < in; ++i)
        turned.data<float>()[(row / out * in + i) * out + column(row % out)] = rows.data<float>()[row * in + i];
    return turned;
  }

  // Losses of AdamW steps against the reference's eight.
  void expect_adamw_losses(double tolerance) {
    const std::vector<float> expected = read_f32(reference, "adamw_losses");
    ASSERT_EQ(expected.size(), 8u);
    const Device device = model.options().device;
    nn::AdamW optimizer(model.parameters(), {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
    const Tensor square = Tensor::empty({1}, DType::f64, device);
    const Tensor norm = Tensor::empty({1}, DType::f32, device), scale = Tensor::empty({1}, DType::f32, device);
    for (std::size_t step = 0; step < expected.size(); ++step) {
      EXPECT_NEAR(loss_and_gradients(), expected[step], tolerance) << "step " << step;
      optimizer.squared_grad_norm(square);
      clip_scale({.squared_norm = square, .max_norm = 1.0f, .norm = norm, .scale = scale});
      optimizer.step(1e-3, static_cast<std::int64_t>(step) + 1, scale);
      optimizer.zero_grad();
    }
  }

  void expect_greedy_tokens() const {
    const std::vector<std::int32_t> expected = read_ids(reference, "greedy");
    const Shape shape = reference.at("greedy").shape;
    constexpr std::size_t kPrompt = 12;
    for (std::int64_t row = 0; row < shape[0]; ++row) {
      const std::span<const std::int32_t> tokens(expected.data() + row * shape[1], static_cast<std::size_t>(shape[1]));
      GenerationResult result = generate(model, tokens.first(kPrompt),
                                         {.max_new_tokens = shape[1] - static_cast<std::int64_t>(kPrompt),
                                          .stop_tokens = model.config().eos_token_ids});
      // Transformers fills a row that ended with its padding id, here the end-of-sequence id.
      if (result.stopped) result.tokens.resize(static_cast<std::size_t>(shape[1]) - kPrompt, result.tokens.back());
      EXPECT_EQ(result.tokens, std::vector<std::int32_t>(tokens.begin() + kPrompt, tokens.end())) << "row " << row;
    }
  }

  std::filesystem::path folder;
  SafetensorsReader reference;
  nn::CausalLm model;
  std::int64_t batch = 0, length = 0, valid = 0;
  Tensor ids, labels;
};

}  // namespace quench::testing
