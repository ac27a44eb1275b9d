#pragma once
// A linear layer of any precision with a low-rank update beside it: u = base(x) + scale * B (A dropout(x)), and y = u,
// or with magnitudes y = m / |W + scale * B A| * u, a factor for each output.

#include <memory>
#include <optional>

#include "core/number/random.h"
#include "nn/low_rank_adapter.h"

namespace quench::recipes {

struct LoraDropout {
  double probability = 0;
  RandomKey key = {};  // seed and stream of the layer; the step is the pass's (autograd::Tape::pass)
};

// A bias is added behind the factors of magnitudes. The products of the update run in the dtype of x. Where the base is
// frozen and its product a plain one, base and update are one product, in the forward pass and for the gradient of x;
// else the base's product is added to the update's, or this to the base's output, in place. Saved for the backward
// pass: x, or the way to it, and scale * A x; with magnitudes u as well. The projections of a fused layer share the
// draws of their dropout, which acts while a tape records.
class LoraLinear final : public nn::LinearKernelWrapper {
 public:
  LoraLinear(std::shared_ptr<const nn::LinearKernel> base, std::shared_ptr<nn::LowRankAdapter> adapter,
             LoraDropout dropout);

  [[nodiscard]] nn::Variable apply(const nn::Variable& x, const nn::Parameter& weight,
                                   const nn::Weight& bias) const override;
  // Where base and update are one product.
  [[nodiscard]] nn::Variable apply_gated(const nn::Variable& x, const nn::Parameter& weight, const nn::Weight& bias,
                                         Tensor& gated) const override;
  [[nodiscard]] Tensor recompute(const nn::Variable& x, const nn::Parameter& weight,
                                 const nn::Weight& bias) const override;
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override;
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  struct Backward;
  // Key of the current pass; absent: no dropout.
  [[nodiscard]] std::optional<RandomKey> draws() const;
  // hidden_scale() * A x [N, rank].
  [[nodiscard]] Tensor hidden_of(const Tensor& x, const std::optional<RandomKey>& key) const;
  // y = beta y + the update of x; returns hidden_of(x).
  Tensor add_update(const Tensor& x, const Tensor& y, const std::optional<RandomKey>& key, float beta) const;
  // Whether the update is written first and the base's product added to it: the base does that, and the update has all
  // columns. Then y is not read for the update.
  [[nodiscard]] bool update_is_first(const nn::Parameter& weight) const;
  // Whether base and update are one product.
  [[nodiscard]] bool is_one_product(const nn::Parameter& weight, const nn::Weight& bias,
                                    const std::optional<RandomKey>& key) const;
  // u of x and hidden_of(x), with SwiGLU of it where `gated` is defined.
  [[nodiscard]] Tensor in_one_product(const Tensor& x, const nn::Parameter& weight, const Tensor& hidden,
                                      const Tensor& gated = {}) const;
  // u; with magnitudes it is asked for without the bias. `gated`: see apply_gated(), or null.
  [[nodiscard]] nn::Variable apply_update(const nn::Variable& x, const nn::Parameter& weight, const nn::Weight& bias,
                                          Tensor* gated = nullptr) const;
  // y of u.
  [[nodiscard]] nn::Variable with_magnitudes(const nn::Variable& u, const nn::Parameter& weight,
                                             const nn::Weight& bias) const;

  std::shared_ptr<nn::LowRankAdapter> adapter_;
  LoraDropout dropout_;
  // Of A x: the scale of all pieces, or 1 where they differ. The rest of a piece's scale goes with its B.
  float hidden_scale_;
  std::string name_;
};

}  // namespace quench::recipes
