#pragma once
// Order in which a pipeline stage runs the passes of a step's micro-batches: one forward, one backward (1F1B;
// Narayanan et al. 2019, PipeDream), and interleaved over chunks of layers (Narayanan et al. 2021, arXiv:2104.04473).

#include <cstdint>
#include <vector>

namespace quench::distributed {

// A rank's place in its pipeline. Chunk c of stage s is chunk c * stages + s of the model.
struct PipelinePlace {
  int stage = 0;
  int stages = 1;
  int chunks = 1;  // a stage

  [[nodiscard]] bool is_first(int chunk) const noexcept { return stage == 0 && chunk == 0; }
  [[nodiscard]] bool is_last(int chunk) const noexcept { return stage == stages - 1 && chunk == chunks - 1; }
};

// Forward or backward pass of a micro-batch through a chunk.
struct PipelineOp {
  bool forward = true;
  int chunk = 0;
  std::int64_t micro_batch = 0;
  friend bool operator==(const PipelineOp&, const PipelineOp&) = default;
};

// Passes of this stage; one stage: each micro-batch forward and backward in turn. A stage holds the activations of at
// most stages - stage micro-batches, with several chunks of 2 * (stages - stage - 1) + (chunks - 1) * stages + 1
// passes. Orders of all stages agree: what one sends, its neighbour receives in the same order. Throws invalid_argument
// for several chunks unless `stages` divides `micro_batches`.
[[nodiscard]] std::vector<PipelineOp> pipeline_schedule(const PipelinePlace& place, std::int64_t micro_batches);

// Forward passes alone, a micro-batch after the other.
[[nodiscard]] std::vector<PipelineOp> forward_schedule(const PipelinePlace& place, std::int64_t micro_batches);

}  // namespace quench::distributed
