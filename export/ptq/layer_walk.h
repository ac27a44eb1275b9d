#pragma once
// Forward pass over calibration data by layer.

#include <cstdint>
#include <span>
#include <vector>

#include "nn/decoder/causal_lm.h"

namespace quench {

class LayerWalk {
 public:
  // Sequences: nonempty, within the vocabulary. Holds one hidden state per token, in the model's dtype on its device.
  // The model must outlive the walk.
  LayerWalk(nn::CausalLm& model, std::span<const std::vector<std::int32_t>> sequences);

  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(layers_.size()); }
  // Next layer for its observers; may be repeated.
  void observe() const;
  // Next layer; its output replaces the hidden states.
  void advance();
  // Inputs of the LM head, after all layers.
  [[nodiscard]] std::vector<Tensor> final_states() const;

 private:
  struct Pass {
    nn::ForwardContext context;
    Tensor hidden;  // [tokens, H]
  };
  [[nodiscard]] Tensor run(const Pass& pass) const;

  std::vector<const nn::DecoderLayer*> layers_;
  const nn::RmsNorm* norm_ = nullptr;
  std::vector<Pass> passes_;
  std::size_t next_ = 0;
};

}  // namespace quench
