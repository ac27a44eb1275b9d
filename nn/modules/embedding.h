#pragma once
// Token embedding table [vocabulary, hidden] and its lookup kernel; a tensor-parallel rank has consecutive rows of it.

#include <memory>
#include <string>
#include <string_view>

#include "nn/modules/linear_kernel.h"
#include "nn/modules/module.h"

namespace quench::nn {

// Kernel of an embedding table, selected by the recipe.
class EmbeddingKernel {
 public:
  virtual ~EmbeddingKernel() = default;
  // Rows of table [V,H] for ids i32 [N]: [N,H], differentiable in the table.
  [[nodiscard]] virtual Variable apply(const Parameter& table, const Tensor& ids) const = 0;
  // Trained like the table.
  [[nodiscard]] virtual std::vector<KernelParameter> parameters() const { return {}; }
  // The table that apply() reads.
  [[nodiscard]] virtual const Parameter& read_weight(const Parameter& table) const { return table; }
  // GEMMs of a tied head, for one loss; null: plain GEMMs.
  [[nodiscard]] virtual std::unique_ptr<HeadGemms> head_gemms(const Parameter&) const { return nullptr; }
  [[nodiscard]] virtual std::string_view name() const = 0;
};

// Lookup in the dtype of the table.
[[nodiscard]] std::shared_ptr<const EmbeddingKernel> high_precision_embedding_kernel();

class Embedding final : public Module {
 public:
  // `rows`: those of this rank.
  Embedding(std::int64_t rows, std::int64_t width, const ParameterOptions& options, float init_std);

  [[nodiscard]] Variable forward(const Tensor& ids) const { return kernel_->apply(weight_, ids); }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms() const { return kernel_->head_gemms(weight_); }

  void set_kernel(std::shared_ptr<const EmbeddingKernel> kernel);
  [[nodiscard]] std::shared_ptr<const EmbeddingKernel> shared_kernel() const noexcept { return kernel_; }
  // As Linear::exchange_kernel().
  void exchange_kernel(std::shared_ptr<const EmbeddingKernel>& kernel) noexcept { kernel_.swap(kernel); }
  [[nodiscard]] const EmbeddingKernel& kernel() const noexcept { return *kernel_; }
  // in: width of a row; out: number of rows.
  [[nodiscard]] LinearInfo info(std::string name) const;
  [[nodiscard]] const Parameter& weight() const noexcept { return weight_; }
  [[nodiscard]] Parameter& weight() noexcept { return weight_; }
  // The table that forward() reads.
  [[nodiscard]] const Parameter& read_weight() const { return kernel_->read_weight(weight_); }

 private:
  Parameter weight_;
  std::shared_ptr<const EmbeddingKernel> kernel_ = high_precision_embedding_kernel();
};

}  // namespace quench::nn
