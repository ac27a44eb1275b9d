#pragma once
// Memory of an engine, counted without allocating it.

#include <cstdint>

#include "engine/engine.h"

namespace quench {

// Allocates and frees on the meta device, where `model` is, what an engine with these options, whose cache_tokens are
// set, allocates for a pass over prompts of `prompt_tokens` tokens and for one over a token of each of its sequences.
// Without CUDA graphs, which keep the logits of each number of rows. Returns the bytes of the KV cache.
std::int64_t plan_engine(const nn::CausalLm& model, const EngineOptions& options, std::int64_t prompt_tokens);

}  // namespace quench
