#include "distributed/pipeline/pipeline_schedule.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench::distributed {
namespace {

// The i-th forward or backward pass of a stage: `stages` micro-batches through a chunk, then through the next one.
PipelineOp pass(const PipelinePlace& place, bool forward, std::int64_t i) {
  const std::int64_t stages = place.stages, round = stages * place.chunks;
  const auto chunk = static_cast<int>(i % round / stages);
  return {forward, forward ? chunk : place.chunks - 1 - chunk, place.chunks == 1 ? i : i / round * stages + i % stages};
}

}  // namespace

std::vector<PipelineOp> pipeline_schedule(const PipelinePlace& place, std::int64_t micro_batches) {
  QUENCH_CHECK(place.chunks == 1 || micro_batches % place.stages == 0,
               "pipeline: {} micro-batches in rounds of {} stages with several chunks", micro_batches, place.stages);
  const std::int64_t all = micro_batches * place.chunks, after = place.stages - place.stage - 1;
  // Forward passes before the first backward pass.
  const std::int64_t ahead =
      std::min(all, place.chunks == 1 ? after : 2 * after + std::int64_t{place.chunks - 1} * place.stages);
  std::vector<PipelineOp> ops;
  for (std::int64_t i = 0; i < ahead; ++i) ops.push_back(pass(place, true, i));
  for (std::int64_t i = ahead; i < all; ++i) {
    ops.push_back(pass(place, true, i));
    ops.push_back(pass(place, false, i - ahead));
  }
  for (std::int64_t i = all - ahead; i < all; ++i) ops.push_back(pass(place, false, i));
  return ops;
}

std::vector<PipelineOp> forward_schedule(const PipelinePlace& place, std::int64_t micro_batches) {
  std::vector<PipelineOp> ops;
  for (std::int64_t i = 0; i < micro_batches; ++i)
    for (int chunk = 0; chunk < place.chunks; ++chunk) ops.push_back({true, chunk, i});
  return ops;
}

}  // namespace quench::distributed
