#pragma once
// Micro-batches, prefetched by a thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor/tensor.h"
#include "data/sampling/batch_part.h"
#include "data/sampling/dataset.h"

namespace quench {

// Micro-batch of one rank.
struct Batch {
  Tensor input_ids;  // i32 [B,T], CPU, category data
  Tensor labels;     // i32 [B,T]: next token, or kIgnoreLabel
  Tensor positions;  // i32 [B,T]: restart per sequence
  // Attention sequences (varlen) over B*T tokens, row-major; without padding.
  std::vector<SequenceRange> sequences;
  std::int64_t valid_tokens = 0;   // labels not kIgnoreLabel
  std::uint64_t first_sample = 0;  // number of row 0; rows are consecutive
  std::vector<AnswerPair> pairs{};
  std::vector<SharedPrefix> prefixes{};  // beginnings of second answers
  // Not null: a part of a longer batch. T is that of the part, `sequences` are pieces of the whole's, whose keys are
  // BatchPart::keys, `pairs` are those of the whole, with its numbers of sequences, and there are no prefixes.
  std::shared_ptr<const BatchPart> part{};
};

// The batch of which `batch` is a part, or itself.
[[nodiscard]] inline const Batch& whole_of(const Batch& batch) noexcept {
  return batch.part ? *batch.part->whole : batch;
}
// Counts of a batch of which every part has all belong to one of them.
[[nodiscard]] inline bool is_first_part(const Batch& batch) noexcept {
  return !batch.part || batch.part->part.index == 0;
}

// Range of samples, device and prefetch depth of a BatchLoader.
struct LoaderOptions {
  std::uint64_t first_sample = 0;  // BatchLoader::position() of an earlier run
  // Exclusive; missing rows of the last step are padding without targets: every rank gets the same number of
  // micro-batches. Unset: endless.
  std::optional<std::uint64_t> end_sample{};
  Device device{};           // GPU: pinned memory
  std::size_t prefetch = 4;  // 0: no thread
  SequencePart part{};       // made of each batch; BatchSplit counts ranks with different rows
};

// Micro-batches of this rank in order. For one thread; a second thread prefetches.
class BatchLoader {
 public:
  // Throws the errors of BatchSplit::check and, without end_sample, Dataset::check_batch.
  BatchLoader(std::shared_ptr<const Dataset> dataset, const BatchSplit& geometry, const LoaderOptions& options = {});
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // Next batch of this rank; nullopt at the end. Errors of the thread are thrown after the batches before them, and on
  // every later call.
  [[nodiscard]] std::optional<Batch> next();

  // First sample of the first step not fully consumed, without prefetched batches. Equal on every rank.
  [[nodiscard]] std::uint64_t position() const;
  [[nodiscard]] double wait_seconds() const;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace quench
