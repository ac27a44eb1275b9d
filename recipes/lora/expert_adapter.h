#pragma once
// LoRA of expert layers: A and B per expert and projection, as PEFT.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/experts/expert_linear.h"
#include "nn/modules/whole_rows.h"

namespace quench::recipes {

struct ExpertPiece {
  std::string layer;  // "gate_proj"
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t rank = 0;
  float scale = 1.0f;
};

class ExpertAdapter {
 public:
  // A is uniform in +-1 / sqrt(in), B is 0.
  ExpertAdapter(const nn::ExpertLinear& layer, std::vector<ExpertPiece> pieces, const nn::ParameterOptions& options);

  // lora_A.<piece>.weight, then lora_B.<piece>.weight, with PEFT's names per expert.
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const;
  [[nodiscard]] const std::vector<ExpertPiece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] std::int64_t experts() const noexcept { return experts_; }
  [[nodiscard]] nn::Parameter& a(std::size_t piece) const { return *a_[piece]; }  // [experts * rank, in]
  [[nodiscard]] nn::Parameter& b(std::size_t piece) const { return *b_[piece]; }  // [experts * rows, rank]

  // Rounded as LowRankAdapter::add_to().
  void add_to(const Tensor& weight, const nn::WholeRows& whole = {}) const;

 private:
  std::int64_t experts_;
  std::string path_;
  std::vector<ExpertPiece> pieces_;
  std::vector<std::unique_ptr<nn::Parameter>> a_, b_;
};

// y = base(x) + scale * B (A x): grouped GEMMs in the dtype of x.
class LoraExperts final : public nn::ExpertKernel {
 public:
  LoraExperts(std::shared_ptr<const nn::ExpertKernel> base, std::shared_ptr<ExpertAdapter> adapter);

  [[nodiscard]] nn::Variable apply(const nn::Variable& x, const nn::Parameter& weight,
                                   const autograd::TokenPermutation& rows) const override;
  [[nodiscard]] nn::Variable apply_to_tokens(const nn::Variable& x, const nn::Parameter& weight,
                                             const autograd::TokenPermutation& rows) const override;
  [[nodiscard]] std::int64_t alignment() const override { return base_->alignment(); }
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override { return adapter_->parameters(); }
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  [[nodiscard]] nn::Variable with_updates(nn::Variable y, const nn::Variable& x,
                                          const autograd::TokenPermutation& rows) const;

  std::shared_ptr<const nn::ExpertKernel> base_;
  std::shared_ptr<ExpertAdapter> adapter_;
  std::string name_;
};

}  // namespace quench::recipes
