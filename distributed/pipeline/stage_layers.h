#pragma once
// Decoder layers of the stages of a pipeline.

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/pipeline/pipeline_schedule.h"
#include "nn/decoder/layer_range.h"
#include "nn/spec/model_config.h"

namespace quench::distributed {

// Layers of `parts` consecutive parts of the model, at least one each, such that the largest cost of a part is least:
// training FLOPs of a token in sequences of `seq_len`, with those of the head in the last part and the update of the
// embedding in the first. `parts` is at most the number of layers.
[[nodiscard]] std::vector<std::int64_t> balanced_layers(const nn::ModelConfig& model, std::int64_t seq_len,
                                                        std::int64_t parts);

// Ranges of a stage's chunks, for `layers` of all stages * chunks parts of the model.
[[nodiscard]] std::vector<nn::LayerRange> stage_chunks(std::span<const std::int64_t> layers,
                                                       const PipelinePlace& place);

}  // namespace quench::distributed
