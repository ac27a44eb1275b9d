#pragma once
// FSDP unit: parameters gathered, resharded and reduced together.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/fsdp/fsdp_unit_weights.h"

namespace quench::distributed {

class FsdpUnit {
 public:
  // Sets nn::Parameter::whole. Weights of `layers` may be gathered as quantized values. `double_buffered`: buffers are
  // shared with units of equal sizes; else allocated per use. `reduces_in_place`: a large parameter's sum replaces its
  // own rows of the full gradient, and is copied when the full one is released: no second buffer during the reduction.
  FsdpUnit(const std::string& name, const std::vector<nn::Parameter*>& parameters,
           const std::vector<const nn::Linear*>& layers, bool double_buffered, bool reduces_in_place,
           std::shared_ptr<FsdpContext> shared);
  ~FsdpUnit();
  FsdpUnit(const FsdpUnit&) = delete;
  FsdpUnit& operator=(const FsdpUnit&) = delete;

  [[nodiscard]] FsdpUnitWeights& weights() noexcept { return weights_; }
  [[nodiscard]] bool trainable() const noexcept { return trainable_count_ > 0; }
  // Called in the backward pass once gradients_ready().
  void when_ready(std::function<void()> hook) { when_ready_ = std::move(hook); }

  // Lets the first contribution to a gradient allocate the full one; before the unit's first backward function.
  void attach_gradients();
  // True once the ready hooks have fired for all trainable parameters of this pass.
  [[nodiscard]] bool gradients_ready() const noexcept { return ready_ == trainable_count_; }
  void expect_gradients() noexcept { ready_ = 0; }
  // Starts the reduce-scatter. Missing gradients count as zeros.
  void begin_reduce();
  // Accumulates reduced rows into the shards' gradients; releases the full ones.
  void end_reduce();

 private:
  class Source;
  // One flat buffer in flight; undefined if all its parameters are frozen.
  struct SmallGradients {
    Tensor all;      // all processes' chunks
    Tensor reduced;  // for this process
  };
  struct Entry {
    std::shared_ptr<autograd::Gradient> gradient;  // full parameter; null if frozen
    bool attached = false;                         // until the reduction ends
    Tensor gradient_values;                        // padded shape, from the first contribution on
    Tensor reduced;                                // this process's chunk, during the reduction
  };

  [[nodiscard]] Tensor acquire(const Shape& shape) const;
  void give_back(Tensor& buffer) const;
  // Padded gradient of a parameter, whose padding is zero; returns its rows.
  [[nodiscard]] Tensor make_gradient(std::size_t parameter);
  void pack_gradients();

  std::string name_;
  bool double_buffered_, reduces_in_place_;
  std::shared_ptr<FsdpContext> shared_;
  FlatLayout layout_;
  FsdpUnitWeights weights_;
  std::vector<Entry> entries_;
  Works reducing_;
  std::vector<SmallGradients> small_;
  std::function<void()> when_ready_;
  int ready_ = 0;
  int trainable_count_ = 0;
};

}  // namespace quench::distributed
