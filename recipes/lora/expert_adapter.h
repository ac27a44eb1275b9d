#pragma once
// Low-rank updates of the linear layers of experts: each expert has an A and a B of its own for each of its
// projections, as PEFT has them for experts that are modules (Mixtral, Qwen3-MoE).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/experts/expert_linear.h"
#include "nn/whole_rows.h"

namespace quench::recipes {

// Of one projection of all experts: rows of each expert's part of the weight.
struct ExpertPiece {
  std::string layer;  // "gate_proj"
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t rank = 0;
  float scale = 1.0f;
};

class ExpertAdapter {
 public:
  // Of a layer's experts, which share the rank and the scale of a projection. A is uniform within 1 / sqrt(in), B is 0.
  ExpertAdapter(const nn::ExpertLinear& layer, std::vector<ExpertPiece> pieces, const nn::ParameterOptions& options);

  // Of each piece A, then B: named lora_A.<piece>.weight and lora_B.<piece>.weight, with PEFT's names for the parts of
  // each expert.
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const;
  [[nodiscard]] const std::vector<ExpertPiece>& pieces() const noexcept { return pieces_; }
  [[nodiscard]] std::int64_t experts() const noexcept { return experts_; }
  [[nodiscard]] nn::Parameter& a(std::size_t piece) const { return *a_[piece]; }  // [experts * rank, in]
  [[nodiscard]] nn::Parameter& b(std::size_t piece) const { return *b_[piece]; }  // [experts * rows, rank]

  // weight [experts * out, in] += scale * B A of each expert, rounded as LowRankAdapter::add_to(). `whole` brings A and
  // B.
  void add_to(const Tensor& weight, const nn::WholeRows& whole = {}) const;

 private:
  std::int64_t experts_;
  std::string path_;
  std::vector<ExpertPiece> pieces_;
  std::vector<std::unique_ptr<nn::Parameter>> a_, b_;
};

// y = base(x) + scale * B (A x) of each row's expert. The products of the update are grouped ones in the dtype of x.
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
  // The base's output with the updates of x in rows.
  [[nodiscard]] nn::Variable with_updates(nn::Variable y, const nn::Variable& x,
                                          const autograd::TokenPermutation& rows) const;

  std::shared_ptr<const nn::ExpertKernel> base_;
  std::shared_ptr<ExpertAdapter> adapter_;
  std::string name_;
};

}  // namespace quench::recipes
