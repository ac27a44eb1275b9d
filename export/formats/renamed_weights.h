#pragma once
// Base class of stored weights whose names differ from those in the file.

#include <memory>
#include <string>
#include <utility>

#include "export/formats/stored_weights.h"

namespace quench {

// Weights under other names than in their file; derived classes give names().
class RenamedWeights : public StoredWeights {
 public:
  explicit RenamedWeights(std::unique_ptr<StoredWeights> weights) : weights_(std::move(weights)) {}

  [[nodiscard]] std::vector<std::string> left_out() const override { return weights_->left_out(); }
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    return weights_->find(stored(name));
  }
  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    weights_->read(stored(name), out, first_row);
  }
  void prefetch(std::string_view name) const override { weights_->prefetch(stored(name)); }
  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    return weights_->read_packed(stored(name));
  }
  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view name) const override {
    return weights_->inputs(stored(name));
  }
  [[nodiscard]] InputArithmetic input_arithmetic() const override { return weights_->input_arithmetic(); }
  [[nodiscard]] std::optional<float> input_scale(std::string_view name) const override {
    return weights_->input_scale(stored(name));
  }
  [[nodiscard]] Tensor block_scales(std::string_view name, std::int64_t expert) const override {
    return weights_->block_scales(stored(name), expert);
  }

 protected:
  // Name in the file.
  [[nodiscard]] virtual std::string stored(std::string_view name) const = 0;

  std::unique_ptr<StoredWeights> weights_;
};

}  // namespace quench
