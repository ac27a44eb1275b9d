#pragma once
// Generation behind many prompts: several texts grow side by side, and a pass of the model serves all of them.

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

// Continues each prompt as generate() does with these options, but for max_new_tokens, which is the prompt's own, and
// for the order of sums where a pass has other sizes. At most `width` texts grow at a time; where one ends, the next
// prompt takes its place. `on_result` is told each result, in the order in which texts end. Throws what generate()
// throws; its first message is that of the first prompt that does not fit.
void generate_batch(const nn::CausalLm& model, std::span<const BatchPrompt> prompts, const GenerationOptions& options,
                    std::int64_t width,
                    const std::function<void(std::size_t prompt, const GenerationResult& result)>& on_result);

}  // namespace quench
