#pragma once
// What a run may choose about its optimizer (config section optimizer). Each optimizer reads what its table entry
// names.

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
  double scale_lr_multiplier = 1;   // of learned scales (multiplicative_updates.h), relative to the learning rate
  DType state_dtype = DType::f32;   // f32 or bf16 running means
  bool master_weights = false;      // keep an f32 copy of bf16 parameters
  bool stochastic_rounding = true;  // where bf16 parameters without master, or bf16 running means, are written
  std::uint64_t seed = 0;
  // Parameters that are not decayed; empty: all are.
  std::function<bool(const Parameter&)> exclude_from_decay = {};
  std::optional<double> momentum = {};  // unset: 0.9 for sgd, 0.95 for muon
  std::optional<bool> nesterov = {};    // unset: no for sgd, yes for muon
  // Matrices that muon leaves to AdamW (embeddings, the head); empty: none.
  std::function<bool(const Parameter&)> exclude_from_muon = {};
  // Where processes hold the parameters by rows: how muon brings a matrix together. Null: every parameter is whole.
  std::shared_ptr<MatrixAllToAll> rows = nullptr;

  // As f32, the way the kernels take it.
  [[nodiscard]] double weight_decay_of(const Parameter& parameter) const {
    const bool decayed = !exclude_from_decay || !exclude_from_decay(parameter);
    return decayed ? static_cast<double>(static_cast<float>(weight_decay)) : 0.0;
  }
};

// An f32 copy of a bf16 parameter, not yet filled, if the options ask for one; else undefined.
[[nodiscard]] Tensor make_master(const Parameter& parameter, const OptimizerOptions& options);
// Global index of the first element that this process holds: where its random bits begin.
[[nodiscard]] std::int64_t element_offset(const Parameter& parameter);

}  // namespace quench::nn
