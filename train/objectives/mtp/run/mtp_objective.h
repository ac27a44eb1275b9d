#pragma once
// Next-token cross-entropy plus that of multi-token prediction (DeepSeek-V3, arXiv:2412.19437, equations 24 and 25).

#include <string>
#include <vector>

#include "train/objective/objective.h"

namespace quench {

// Rows of depth k: tokens i + k for the embedding and labels of tokens i + k + 1, both i32 [N] in host memory. Rows
// without a token i + k in their sequence have their sequence's last token and no label, and are not in `rows`, i32
// [M]. Of a part of a batch: its rows of those of the whole.
struct MtpRows {
  Tensor ids, labels, rows;
  std::int64_t targets = 0;
  float part = 1.0F;  // share of the whole batch's `rows`
};
[[nodiscard]] MtpRows mtp_rows(const Batch& batch, std::int64_t depth);

// Loss of the step: mean cross-entropy over labels, plus weight / depths times the sum over depths of their
// cross-entropies, divided by the same number of labels. Metrics: the mean cross-entropy of each depth's own targets,
// mtp_loss, or mtp_loss_1 and so on. The reported loss is the first term.
class MtpObjective final : public Objective {
 public:
  // `model` has MTP layers and must outlive it.
  MtpObjective(const nn::CausalLm& model, double weight);
  [[nodiscard]] std::vector<std::string> metric_names() const override;
  [[nodiscard]] autograd::Variable loss(const ObjectiveInput& in, float scale, const LmHeadLossOptions& options,
                                        const Tensor& metrics) override;
  [[nodiscard]] std::vector<double> reported(std::vector<double> means) const override;

 private:
  const nn::CausalLm& model_;
  std::int64_t depths_;
  float weight_;
};

}  // namespace quench
