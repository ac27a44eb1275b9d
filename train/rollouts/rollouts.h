#pragma once
// Completions that the model in training samples, by the engine, without a copy of its weights.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "data/sampling/loader.h"
#include "data/tokenizer/tokenizer.h"
#include "engine/sampling.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

struct RolloutPrompt {
  std::uint64_t sample = 0;  // keys its random draws
  std::vector<std::int32_t> tokens;
  std::string text;  // valid UTF-8
  Json record;       // the other fields
};

struct Completion {
  std::vector<std::int32_t> tokens;  // at least one, with the token that ended it
  std::vector<double> logps;  // log-probabilities of `tokens` in the model's own distribution when they were sampled
  bool ended = false;         // by a stop token, else at the limit
  std::string text;           // valid UTF-8, without special tokens
};

struct RolloutOptions {
  std::int64_t generations = 1;      // completions of each prompt
  std::int64_t max_tokens = 1;       // largest length of a completion
  std::int64_t sequence_tokens = 1;  // prompt and completion without its last token
  SamplingOptions sampling;          // its seed is that of the run
  std::vector<std::int64_t> stop_tokens;
};

// Prompts of a step's micro-batches (PackedRows of AnswerRecords::prompts). Throws corrupt for a record whose fields
// the tokenizer does not reproduce.
[[nodiscard]] std::vector<RolloutPrompt> rollout_prompts(std::span<const Batch> batches, const Tokenizer& tokenizer);

// Prompts of conversations, or of records with a prompt: what comes before the last targets of each sequence. Sequences
// that begin with them, or have none, are left out. Without fields.
[[nodiscard]] std::vector<RolloutPrompt> answer_prompts(std::span<const Batch> batches, const Tokenizer& tokenizer);

// By prompt: `generations` completions, each a function of the weights, the run's seed, `step`, the prompt's sample and
// its number in the group. Throws what the engine's requests fail with.
[[nodiscard]] std::vector<std::vector<Completion>> sample_completions(const nn::CausalLm& model,
                                                                      std::span<const RolloutPrompt> prompts,
                                                                      const RolloutOptions& options, std::int64_t step,
                                                                      const Tokenizer& tokenizer);

// Allocates and frees on the meta device, where `model` is, what sample_completions() of `prompts` prompts needs at
// most. Returns the bytes of its KV cache.
std::int64_t plan_completions(const nn::CausalLm& model, std::int64_t prompts, const RolloutOptions& options);

// A prompt's tokens and a completion's, with one logical sequence in training.
struct RolloutSequence {
  std::span<const std::int32_t> prompt, completion;
};
// Micro-batches of `rows` rows of `length` tokens over whole sequences, and the sequences of each, in the order of
// Batch::sequences; Batch::first_sample numbers the micro-batches. At least one, of padding alone without sequences.
struct RolloutBatches {
  std::vector<Batch> batches;
  std::vector<std::vector<std::size_t>> members;
};
[[nodiscard]] RolloutBatches pack_rollouts(std::span<const RolloutSequence> sequences, std::int64_t rows,
                                           std::int64_t length);

}  // namespace quench
