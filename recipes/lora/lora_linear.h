#pragma once
// LoRA linear layer: u = base(x) + scale * B (A dropout(x)); y = u, or with DoRA y = m / |W + scale * B A| * u.

#include <memory>
#include <optional>

#include "core/number/random.h"
#include "nn/modules/low_rank_adapter.h"

namespace quench::recipes {

struct LoraDropout {
  double probability = 0;
  RandomKey key = {};  // seed and stream of the layer; the step is autograd::Tape::pass
};

// DoRA adds the bias after the factors. Update GEMMs run in the dtype of x. With a frozen high-precision base without
// bias, no dropout and one scale for all pieces, base and update are one fused GEMM, in the forward pass and for dgrad;
// otherwise one accumulates onto the other in place. Saved for the backward pass: x (or its recompute handle), scale *
// A x, and u with DoRA. Projections of a fused layer have common dropout draws. Dropout is active only in a
// pass that a tape records, or will in its recompute (autograd::Tape::current_pass()).
class LoraLinear final : public nn::LinearKernelWrapper {
 public:
  LoraLinear(std::shared_ptr<const nn::LinearKernel> base, std::shared_ptr<nn::LowRankAdapter> adapter,
             LoraDropout dropout);

  // Recomputes; fuses a gated activation into one GEMM of base and update.
  [[nodiscard]] bool supports(const nn::LinearCall& call, const nn::Parameter& weight,
                              const nn::Weight& bias) const override;
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override;
  [[nodiscard]] std::shared_ptr<const nn::LinearKernel> with_adapter(
      const std::shared_ptr<nn::LowRankAdapter>& /*adapter*/) const override {
    return nullptr;
  }
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  struct Backward;
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                        const nn::Weight& bias) const override;
  // Absent without dropout.
  [[nodiscard]] std::optional<RandomKey> draws() const;
  // hidden_scale() * A x [N, rank].
  [[nodiscard]] Tensor hidden_of(const Tensor& x, const std::optional<RandomKey>& key) const;
  // y = beta * y + update of x; returns hidden_of(x).
  Tensor add_update(const Tensor& x, const Tensor& y, const std::optional<RandomKey>& key, float beta) const;
  // True if the base can accumulate onto the update, which covers all columns; y is then not read.
  [[nodiscard]] bool update_is_first(const nn::Parameter& weight, const nn::Weight& bias) const;
  // One fused GEMM for base and update.
  [[nodiscard]] bool is_one_product(const nn::Parameter& weight, const nn::Weight& bias,
                                    const std::optional<RandomKey>& key) const;
  // u of x and hidden_of(x), with the gated activation into `gated` if defined.
  [[nodiscard]] Tensor in_one_product(const Tensor& x, const nn::Parameter& weight, const Tensor& hidden,
                                      const Tensor& gated = {},
                                      GatedActivation activation = GatedActivation::silu) const;
  // u; without the bias if DoRA. `gated`: result of the gated activation, or null; requires is_one_product().
  [[nodiscard]] nn::Variable apply_update(const nn::Variable& x, const nn::Parameter& weight, const nn::Weight& bias,
                                          Tensor* gated = nullptr,
                                          GatedActivation activation = GatedActivation::silu) const;
  [[nodiscard]] nn::Variable with_magnitudes(const nn::Variable& u, const nn::Parameter& weight,
                                             const nn::Weight& bias) const;
  [[nodiscard]] Tensor recomputed(const nn::Variable& x, const nn::Parameter& weight, const nn::Weight& bias) const;

  std::shared_ptr<nn::LowRankAdapter> adapter_;
  LoraDropout dropout_;
  // Common scale of all pieces, or 1; the rest is applied with B.
  float hidden_scale_;
  std::string name_;
};

}  // namespace quench::recipes
