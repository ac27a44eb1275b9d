#pragma once
// Batched generation for many prompts.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "train/generation/generator.h"

namespace quench {

struct BatchPrompt {
  std::vector<std::int32_t> tokens;
  std::int64_t max_new_tokens = 128;
};

// Continues each prompt as generate() with these options, except for max_new_tokens, set per prompt, and for the
// summation order at other batch sizes. Continuous batching: at most `width` sequences; a finished one is replaced by
// the next prompt. Calls `on_result` in order of completion, and `on_token`, if set, as generate() does. Throws as
// generate(), for the first prompt that does not fit.
void generate_batch(const nn::CausalLm& model, std::span<const BatchPrompt> prompts, const GenerationOptions& options,
                    std::int64_t width,
                    const std::function<void(std::size_t prompt, const GenerationResult& result)>& on_result,
                    const std::function<bool(std::size_t prompt, std::int32_t token)>& on_token = {});

}  // namespace quench
