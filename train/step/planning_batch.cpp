#include "train/step/planning_batch.h"

namespace quench {

Batch planning_batch(std::int64_t rows, std::int64_t length) {
  Batch batch;
  batch.input_ids = Tensor::empty({rows, length}, DType::i32, kPlanning);
  batch.labels = Tensor::empty({rows, length}, DType::i32, kPlanning);
  batch.positions = Tensor::empty({rows, length}, DType::i32, kPlanning);
  for (std::int64_t r = 0; r < rows; ++r) batch.sequences.push_back({r * length, length, r * length, length});
  batch.valid_tokens = rows * length;
  return batch;
}

}  // namespace quench
