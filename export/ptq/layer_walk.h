#pragma once
// Forward pass over calibration data by layer.

#include <cstdint>
#include <span>
#include <vector>

#include "export/ptq/observers.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

class LayerWalk {
 public:
  // Sequences: nonempty, within the vocabulary. Holds one hidden state per token, in the model's dtype on its device;
  // with `reference` also that of the unquantized model. The model must outlive the walk.
  LayerWalk(nn::CausalLm& model, std::span<const std::vector<std::int32_t>> sequences, bool reference = false);

  [[nodiscard]] std::int64_t layers() const noexcept { return static_cast<std::int64_t>(layers_.size()); }
  // Next layer for its observers; may be repeated.
  void observe(InputObservers& observers) const;
  // Next layer; its output replaces the hidden states.
  void advance();
  // Before the next layer is quantized, once: the reference states become its outputs.
  void advance_reference();

  // Some of the sequences, for the next layer.
  struct Batch {
    nn::ForwardContext context;
    Tensor inputs;   // [tokens, H]: hidden states
    Tensor targets;  // reference states
  };
  [[nodiscard]] std::int64_t sequences() const noexcept { return static_cast<std::int64_t>(places_.size()); }
  [[nodiscard]] Batch batch(std::span<const std::int64_t> sequences) const;
  // Output of the next layer, recorded on the current tape.
  [[nodiscard]] autograd::Variable forward(const Batch& batch) const;

  // Inputs of the LM head, after all layers.
  [[nodiscard]] std::vector<Tensor> final_states() const;

 private:
  struct Pass {
    nn::ForwardContext context;
    Tensor hidden;     // [tokens, H]
    Tensor reference;  // the same, or undefined
  };
  // Tokens of a sequence.
  struct Place {
    std::size_t pass;
    std::int64_t begin, length;
  };
  [[nodiscard]] autograd::Variable run(const Tensor& hidden, const nn::ForwardContext& context) const;

  nn::CausalLm& model_;
  std::vector<const nn::DecoderLayer*> layers_;
  const nn::RmsNorm* norm_ = nullptr;
  std::vector<Pass> passes_;
  std::vector<Place> places_;  // by sequence
  std::size_t next_ = 0;
};

}  // namespace quench
