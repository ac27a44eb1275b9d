#pragma once
// Elementwise parts of Muon (Jordan et al., 2024), as in torch.optim.Muon. Other fields: AdamWTensor.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

struct MuonMomentumArgs {
  Tensor grad;      // f32/bf16, contiguous, as all tensors
  Tensor momentum;  // in/out, f32/bf16
  Tensor update;    // out, bf16
  float beta = 0.95f;
  bool nesterov = true;
  Tensor grad_scale{};  // f32 [1] on the device, optional; non-finite: momentum kept, update 0
};

struct NormalizeGramArgs {
  Tensor gram;           // [batch,N,N] bf16, in/out
  Tensor inverse_norms;  // f32 [batch], out
  float least = 1e-7f;
};

struct MuonApplyArgs {
  Tensor param;  // f32/bf16
  Tensor master;
  Tensor update;  // bf16
  float decay = 1.0f;
  float step_size = 0.0f;
  Tensor grad_scale;                 // non-finite: no update
  bool stochastic_rounding = false;  // bf16 param without master
  std::uint64_t seed = 0, random_stream = 0;
  std::int64_t step = 1, element_offset = 0;
};

extern constinit KernelSlot<MuonMomentumArgs> muon_momentum_slot;
extern constinit KernelSlot<NormalizeGramArgs> normalize_gram_slot;
extern constinit KernelSlot<MuonApplyArgs> muon_apply_slot;

// m = m + (1 - beta) (g - m); update = nesterov ? g + beta (m - g) : m.
void muon_momentum(const MuonMomentumArgs& args);
// Frobenius normalization: inverse_norm = 1 / max(sqrt(trace), least), gram = gram inverse_norm^2.
void normalize_gram(const NormalizeGramArgs& args);
// p = p decay + step_size update.
void muon_apply(const MuonApplyArgs& args);

}  // namespace quench
