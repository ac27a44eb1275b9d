#include "train/step/meta_batch.h"

namespace quench {

Batch meta_batch(std::int64_t rows, std::int64_t length) {
  Batch batch;
  batch.input_ids = Tensor::empty({rows, length}, DType::i32, kMeta);
  batch.labels = Tensor::empty({rows, length}, DType::i32, kMeta);
  batch.positions = Tensor::empty({rows, length}, DType::i32, kMeta);
  for (std::int64_t r = 0; r < rows; ++r) batch.sequences.push_back({r * length, length, r * length, length});
  batch.valid_tokens = rows * length;
  return batch;
}

}  // namespace quench
