#pragma once
// Divergence of a model's next tokens under quantized weights, measured on calibration data.

#include <span>
#include <vector>

#include "export/ptq/quantize_model.h"

namespace quench {

// Mean KL divergence, in nats a token, of the model's distributions from those at construction. Holds the logits of all
// tokens in f32 on the model's device.
class OutputDivergence {
 public:
  // The first sequences of `data`, at most `most_tokens` together, at least one (which may be longer). The model must
  // outlive it, and have its weights in high precision.
  OutputDivergence(nn::CausalLm& model, const CalibrationData& data, std::int64_t most_tokens);

  // With the model's weights as they are now. Infinite if a logit is not finite.
  [[nodiscard]] double measure() const;
  [[nodiscard]] std::int64_t tokens() const noexcept { return tokens_; }

 private:
  [[nodiscard]] Tensor logits(std::size_t sequence) const;

  nn::CausalLm& model_;
  std::vector<std::vector<std::int32_t>> sequences_;
  std::vector<Tensor> reference_;  // logits of a sequence
  std::int64_t tokens_ = 0;
};

// Weights of a model that take quantized values for a while: the destructor restores them.
class TriedWeights {
 public:
  TriedWeights() = default;
  TriedWeights(const TriedWeights&) = delete;
  TriedWeights& operator=(const TriedWeights&) = delete;
  ~TriedWeights();

  // The values of `tensor` rounded (RTN) under `scheme`; null: its own. `importance`: of GGUF types. The first call for
  // a tensor keeps a copy of its values on the CPU.
  void set(const ModelTensor& tensor, const Scheme* scheme, const QuantizationRules& rules,
           std::span<const float> importance);

 private:
  struct Original {
    const ModelTensor* tensor;
    Tensor values;
  };
  static void put(const ModelTensor& tensor, const Tensor& values);

  std::vector<Original> originals_;
};

}  // namespace quench
