#pragma once
// Text generation with a key-value cache.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nn/causal_lm.h"
#include "train/generation/token_choice.h"

namespace quench {

class Decoder;

struct GenerationOptions {
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  std::vector<std::int64_t> stop_tokens;  // end-of-sequence ids: generation ends when one is produced
};

struct GenerationResult {
  std::vector<std::int32_t> tokens;  // generated ones, the stop token included
  bool stopped = false;              // by a stop token rather than by max_new_tokens
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

// Continues `prompt` (at least one token). `on_token`, if set, sees every token as it is produced and returns false to
// stop. Throws bad_config when prompt and new tokens exceed the model's max_position_embeddings, nonfinite when the
// model's logits are NaN or infinite.
[[nodiscard]] GenerationResult generate(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                                        const GenerationOptions& options,
                                        const std::function<bool(std::int32_t)>& on_token = {});

// The same for texts that have much in common, such as the turns of a conversation: tokens that a prompt shares with
// the text before it, from the first on, are not computed again.
class GenerationSession {
 public:
  // The model outlives the session.
  explicit GenerationSession(const nn::CausalLm& model);
  ~GenerationSession();
  GenerationSession(const GenerationSession&) = delete;
  GenerationSession& operator=(const GenerationSession&) = delete;

  [[nodiscard]] GenerationResult generate(std::span<const std::int32_t> prompt, const GenerationOptions& options,
                                          const std::function<bool(std::int32_t)>& on_token = {});
  // Tokens of the last prompt that were there already.
  [[nodiscard]] std::size_t reused() const noexcept { return reused_; }

 private:
  const nn::CausalLm& model_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<std::int32_t> seen_;  // by the decoder
  std::size_t reused_ = 0;
};

// Throws what generate() throws about them.
void check_generation(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                      const GenerationOptions& options);

// Tokens that fit behind a prompt of `prompt_tokens` in the model's context.
[[nodiscard]] std::int64_t room_behind(const nn::ModelConfig& model, std::size_t prompt_tokens);

}  // namespace quench
