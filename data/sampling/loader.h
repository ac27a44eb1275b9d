#pragma once
// Micro-batches of a dataset, made ahead of time by a background thread.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor/tensor.h"
#include "data/sampling/dataset.h"

namespace quench {

struct Batch {
  Tensor input_ids;  // i32 [B,T], CPU, memory category data
  Tensor labels;     // i32 [B,T]: the next token or kIgnoreLabel
  Tensor positions;  // i32 [B,T]: restart with every sequence
  // Attention sequences over the B*T tokens in row-major order; padding is in none.
  std::vector<SequenceRange> sequences;
  std::int64_t valid_tokens = 0;   // labels that count
  std::uint64_t first_sample = 0;  // global index of row 0; the rows are consecutive samples
};

struct LoaderOptions {
  std::uint64_t first_sample = 0;  // where the first step begins: BatchLoader::position() of an earlier run
  // Stop before this sample; the last step's missing rows are padding without targets, so that every rank gets the same
  // number of micro-batches. Without it the stream does not end.
  std::optional<std::uint64_t> end_sample{};
  Device device{};           // where the batches go: for a GPU they are made in page-locked memory
  std::size_t prefetch = 4;  // micro-batches made ahead at most; 0: none, and no thread
};

class BatchLoader {
 public:
  // Starts the thread. Throws what BatchSplit::check and, without end_sample, Dataset::check_batch throw.
  BatchLoader(std::shared_ptr<const Dataset> dataset, const BatchSplit& geometry, const LoaderOptions& options = {});
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The next micro-batch of this rank; nullopt after the end. An error of the thread is thrown here, after the batches
  // made before it, and again by every later call.
  [[nodiscard]] std::optional<Batch> next();

  // First sample of the step that is not yet wholly handed out: what a checkpoint stores. Batches made ahead do not
  // count. The same on every rank.
  [[nodiscard]] std::uint64_t position() const;
  // Seconds that next() has waited for batches so far.
  [[nodiscard]] double wait_seconds() const;

 private:
  class Worker;
  std::unique_ptr<Worker> worker_;
};

}  // namespace quench
