#pragma once
// Text generation with a KV cache.

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/sampling.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

class Decoder;

// Length, sampling and end of a generation.
struct GenerationOptions {
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling{};
  std::vector<std::int64_t> stop_tokens{};   // EOS ids
  std::shared_ptr<const Grammar> grammar{};  // null: any text
};

// Generated tokens and times.
struct GenerationResult {
  std::vector<std::int32_t> tokens;  // generated tokens, including the stop token
  bool stopped = false;              // ended by a stop token or by its grammar, not by max_new_tokens
  double prompt_seconds = 0;
  double decode_seconds = 0;
};

// Continues `prompt` (at least one token). `on_token`, if set, is called per token; false stops. Throws bad_config if
// prompt plus new tokens exceed max_position_embeddings, nonfinite for NaN or infinite logits.
[[nodiscard]] GenerationResult generate(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                                        const GenerationOptions& options,
                                        const std::function<bool(std::int32_t)>& on_token = {});

// Generation with prefix reuse, e.g. for the turns of a conversation: the common token prefix with the previous text
// stays in the KV cache.
class GenerationSession {
 public:
  // The model must outlive the session.
  explicit GenerationSession(const nn::CausalLm& model);
  ~GenerationSession();
  GenerationSession(const GenerationSession&) = delete;
  GenerationSession& operator=(const GenerationSession&) = delete;

  [[nodiscard]] GenerationResult generate(std::span<const std::int32_t> prompt, const GenerationOptions& options,
                                          const std::function<bool(std::int32_t)>& on_token = {});
  // Reused tokens of the last prompt.
  [[nodiscard]] std::size_t reused() const noexcept { return reused_; }

 private:
  const nn::CausalLm& model_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<std::int32_t> seen_;  // tokens in the decoder's KV cache
  std::size_t reused_ = 0;
};

// Throws generate()'s argument errors.
void check_generation(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                      const GenerationOptions& options);

// Context length left after `prompt_tokens` tokens.
[[nodiscard]] std::int64_t room_behind(const nn::ModelConfig& model, std::size_t prompt_tokens);

}  // namespace quench
