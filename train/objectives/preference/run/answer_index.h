#pragma once
// Answers of a micro-batch as the ops of core/ops/loss/answer_loss.h address them: over the rows that an LM head
// computes.

#include "core/ops/loss/answer_loss.h"
#include "data/sampling/loader.h"
#include "train/objective/labelled_rows.h"

namespace quench {

class AnswerIndex {
 public:
  // Answers are the sequences of the whole batch; sums over a part of it are of its rows alone. `rows`: of
  // batch.labels, or of labels that include theirs. `with_prompts`: also rows of prompts before chosen answers (orpo).
  // On the device, by copies that do not wait for it; on meta, shapes alone.
  AnswerIndex(const Batch& batch, const LabelledRows& rows, Device device, bool with_prompts = false);

  [[nodiscard]] std::int64_t answers() const noexcept { return tokens_.numel(); }
  // f64 [A]: log-probability of each answer, from cross-entropies f32 [R] of the rows.
  [[nodiscard]] Tensor logps(const Tensor& losses) const { return sums({ranges_, owners_}, losses); }
  // The same over prompts and chosen answers together.
  [[nodiscard]] Tensor prompt_logps(const Tensor& losses) const { return sums({ranges_, prompts_}, losses); }

  [[nodiscard]] const Tensor& tokens() const noexcept { return tokens_; }    // i32 [A], of whole answers
  [[nodiscard]] const Tensor& pairs() const noexcept { return pairs_; }      // i32 [P,2]
  [[nodiscard]] const Tensor& owners() const noexcept { return owners_; }    // i32 [R]
  [[nodiscard]] const Tensor& prompts() const noexcept { return prompts_; }  // i32 [R]; undefined without
  [[nodiscard]] std::int64_t prompt_rows() const noexcept { return prompt_rows_; }

 private:
  [[nodiscard]] Tensor sums(const AnswerRows& rows, const Tensor& losses) const;

  Tensor ranges_, owners_, tokens_, pairs_, prompts_;
  std::int64_t prompt_rows_ = 0;  // in whole answers
};

}  // namespace quench
