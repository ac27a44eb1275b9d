#pragma once
// Vocabulary in parts of V consecutive tokens, one per rank: rows of the embedding and cross-entropy of a part's
// logits. Ids and labels i32 [N] count the whole vocabulary; a part begins at token `first`.

#include "core/ops/loss/cross_entropy.h"

namespace quench {

// Columns of LogitsStatisticsArgs::statistics.
inline constexpr std::int64_t kLogitsStatistics = 3;

struct LogitsStatisticsArgs {
  Tensor logits;  // [N,V], contiguous; f32/bf16
  Tensor labels;  // i32 [N]
  std::int64_t first = 0;
  Tensor statistics;  // out, f32 [N,3]: largest logit m, sum of exp(logit - m), logit of the label, 0 for one elsewhere
};

struct CrossEntropyPartArgs {
  Tensor logits;  // [N,V], contiguous; f32/bf16
  Tensor labels;  // i32 [N]; kIgnoreLabel: loss and gradient 0
  std::int64_t first = 0;
  Tensor statistics;  // f32 [P * N,3] of all P parts, by part
  Tensor losses;      // out, f32 [N]: as of cross_entropy() of the whole vocabulary
  Tensor dlogits{};   // out, optional, [N,V], f32/bf16: this part of its gradients; may alias logits
  float grad_scale = 1.0f;
};

struct OwnRowsArgs {
  Tensor ids;  // i32 [N]
  std::int64_t first = 0;
  std::int64_t count = 0;  // V
  Tensor rows;             // out, i32 [N]: row of the id in this part; any row in [0,V) for an id elsewhere
  Tensor factors;          // out, f32 [N]: 1; 0 for an id elsewhere
};

extern constinit KernelSlot<LogitsStatisticsArgs> logits_statistics_slot;
extern constinit KernelSlot<CrossEntropyPartArgs> cross_entropy_part_slot;
extern constinit KernelSlot<OwnRowsArgs> own_rows_slot;

// f32 arithmetic.
void logits_statistics(const LogitsStatisticsArgs& args);
// f32 softmax; equal losses on all ranks. Names row and label outside [0, P * V) (CPU).
void cross_entropy_part(const CrossEntropyPartArgs& args);
void own_rows(const OwnRowsArgs& args);

}  // namespace quench
