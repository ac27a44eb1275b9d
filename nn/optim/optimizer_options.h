#pragma once
// Options of all optimizers, and tensors of their state.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/number/dtype.h"
#include "nn/optim/matrix_all_to_all.h"

namespace quench::nn {

struct OptimizerOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double scale_lr_multiplier = 1;   // for learned scales (multiplicative_updates.h)
  DType state_dtype = DType::f32;   // moments: f32 or bf16
  bool master_weights = false;      // f32 copy of bf16 parameters
  bool split_master = false;        // AdamW: 16 bits beyond the bf16 parameter in its place (core/number/split_f32.h)
  bool stochastic_rounding = true;  // on writes of bf16 parameters without master weights, and of bf16 moments
  std::uint64_t seed = 0;
  // Parameters excluded from weight decay; empty: none.
  std::function<bool(const Parameter&)> exclude_from_decay = {};
  // Weight decay of a parameter, in place of the two above; nullopt: they apply.
  std::function<std::optional<double>(const Parameter&)> group_decay = {};
  std::optional<double> momentum = {};  // unset: 0.9 for sgd, 0.95 for muon
  std::optional<bool> nesterov = {};    // unset: no for sgd, yes for muon
  // Matrices that Muon hands to AdamW (embeddings, head); empty: none.
  std::function<bool(const Parameter&)> exclude_from_muon = {};
  // All-to-all of row-sharded matrices for Muon; null: parameters are whole.
  std::shared_ptr<MatrixAllToAll> rows = nullptr;
  bool host_state = false;  // state is made in pinned host memory, for a StateStream

  // Rounded to f32, as in the kernels.
  [[nodiscard]] double weight_decay_of(const Parameter& parameter) const {
    if (const auto own = group_decay ? group_decay(parameter) : std::nullopt)
      return static_cast<double>(static_cast<float>(*own));
    const bool decayed = !exclude_from_decay || !exclude_from_decay(parameter);
    return decayed ? static_cast<double>(static_cast<float>(weight_decay)) : 0.0;
  }
};

// Zeros, on `device` or in host memory for it (OptimizerOptions::host_state; meta device: without bytes).
[[nodiscard]] Tensor make_state(const Shape& shape, DType dtype, Device device, bool in_host_memory);
// To nearest, on the device of `from`; `to` may be in host memory, which holds the values on return.
void cast_state(const Tensor& from, const Tensor& to);
// Unfilled; undefined if not requested.
[[nodiscard]] Tensor make_master(const Parameter& parameter, const OptimizerOptions& options);
// Global index of the first local element, for random bits.
[[nodiscard]] std::int64_t element_offset(const Parameter& parameter);

}  // namespace quench::nn
