#include "recipes/tied_head.h"

namespace quench::recipes {
namespace {

class TiedHead final : public nn::EmbeddingKernel {
 public:
  explicit TiedHead(std::shared_ptr<const nn::LinearKernel> head) : head_(std::move(head)) {}

  [[nodiscard]] nn::Variable apply(const nn::Parameter& table, const Tensor& ids) const override {
    return nn::high_precision_embedding_kernel()->apply(table, ids);
  }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& table) const override {
    return head_->head_gemms(table);
  }
  [[nodiscard]] std::string_view name() const override { return head_->name(); }

 private:
  std::shared_ptr<const nn::LinearKernel> head_;
};

}  // namespace

std::shared_ptr<const nn::EmbeddingKernel> tied_head(std::shared_ptr<const nn::LinearKernel> head) {
  return std::make_shared<TiedHead>(std::move(head));
}

}  // namespace quench::recipes
