#pragma once
// Passes of a model over calibration data, one decoder layer at a time.

#include <cstdint>
#include <span>
#include <vector>

#include "nn/causal_lm.h"

namespace quench {

class LayerWalk {
 public:
  // Embeds the sequences, which are not empty and within the model's vocabulary. Between layers it holds one hidden
  // state for each token, in the model's dtype on the model's device. The model outlives the walk.
  LayerWalk(nn::CausalLm& model, std::span<const std::vector<std::int32_t>> sequences);

  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(layers_.size()); }
  // Runs the next layer over all tokens, as often as wanted: its kernels see their inputs.
  void observe() const;
  // The same, and what comes out is what the layer after it gets.
  void advance();
  // What the head reads; all layers have been passed.
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
