#pragma once
// Tuning of a decoder layer's quantized weights against its output (AutoRound).

#include <span>

#include "export/ptq/layer_walk.h"
#include "export/ptq/quantized_layer.h"

namespace quench {

struct BlockWeight {
  QuantizedLayer* layer = nullptr;  // with a scheme
  Tensor importance;                // weights of columns, f32 [K] (importance_of())
};

// Sets `tuned` of the weights, which are those of the walk's next layer: batches of options.batch_size sequences,
// options.iterations steps of a rate that falls linearly from 1 / iterations, against the squared difference of the
// layer's outputs on the walk's states from its reference states. Of the last step and the one with the
// least loss relative to its batch's loss at the start, the better on all sequences is taken; if the start is better
// still, nothing is set. The model's parameters keep their values. Deterministic; `number` seeds the order of
// sequences. Throws nonfinite for a loss that is not finite.
void tune_block(const LayerWalk& walk, std::span<const BlockWeight> weights, const QuantizationRules& rules,
                std::uint64_t number);

}  // namespace quench
