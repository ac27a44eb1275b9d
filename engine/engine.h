#pragma once
// Continuous batching over a paged KV cache: many requests share each pass of one model.
//
// A step of the engine is one pass: of prompt chunks of admitted requests, or of one token of every running one. A
// request is admitted when pages for its prompt are free, in order of submission; where the cache runs out, the newest
// request gives its pages back and its tokens are computed again later. Prompts with equal beginnings and the same
// adapter share pages.
//
// Slices of a model (autograd/tensor_parallel.h): rank 0 has the engine, and the others run follow_passes()
// (engine/pass_script.h); or all have engines and make the same calls.
//
// A request's tokens depend on its prompt, options and seed; on other requests only through the summation order of
// GEMMs of another batch size.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/system/check.h"
#include "engine/grammar/grammar.h"
#include "engine/sampling.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

// A token and its natural log-probability.
struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
};

// A token that a request has generated.
struct SampledToken {
  std::int32_t token = 0;
  // Natural logarithm of the model's probability: of the logits as they are, before temperature, filters and grammar.
  float logprob = 0;
  std::vector<TokenLogprob> top;  // EngineRequest::top_logprobs most likely ones, descending
};

// Why a request ended. stop_token: also a text that its grammar ends, of a request without stop tokens. stopped:
// on_token returned false. failed: EngineResult::error.
enum class EndReason { stop_token, length, stopped, cancelled, failed };

// Tokens of a request that has ended.
struct EngineResult {
  std::vector<std::int32_t> tokens;  // generated, including the stop token
  std::vector<float> logprobs;       // one for each of `tokens`
  EndReason reason = EndReason::length;
  std::string error;  // failed alone
  ErrorCode code = ErrorCode::failed;
  std::int64_t reused_tokens = 0;  // prompt tokens found in the cache
  // From submission to admission, from there to the first token, from there to the last.
  double wait_seconds = 0, prompt_seconds = 0, decode_seconds = 0;
};

// A prompt to continue, and how.
struct EngineRequest {
  std::vector<std::int32_t> prompt;  // at least one token
  std::int64_t max_new_tokens = 128;
  SamplingOptions sampling{};
  std::vector<std::int64_t> stop_tokens{};
  std::int64_t top_logprobs = 0;  // at most kMostTopLogprobs
  std::int64_t adapter = -1;      // one of EngineOptions::adapters; -1: none
  // Answer's grammar, of the model's vocabulary; null: any text. Passes with such a request do not overlap.
  std::shared_ptr<const Grammar> grammar{};
  // Called by the thread that calls step(). on_token: for every token, a stop token too; false ends the request. They
  // must not throw.
  std::function<bool(const SampledToken&)> on_token{};
  std::function<void(EngineResult)> on_end{};
};

// Largest EngineRequest::top_logprobs.
inline constexpr std::int64_t kMostTopLogprobs = 20;

// Sizes of an engine.
struct EngineOptions {
  std::int64_t max_sequences = 64;  // running together
  std::int64_t cache_tokens =
      0;  // KV cache; 0: max_sequences times the context length, at most 0.8 of a GPU's free memory, 0.25 of the host's
  std::int64_t prefill_tokens = 2048;  // prompt tokens in a pass
  bool share_prefixes = true;
  std::int64_t adapters = 0;  // size of the bank in the model's layers (recipes/lora/adapter_bank.h)
};

// Counts and sizes of an engine at one time.
struct EngineStats {
  std::int64_t running = 0, waiting = 0;           // requests
  std::int64_t cache_tokens = 0, free_tokens = 0;  // KV cache; pages kept for their prefix count as free
  std::int64_t requests = 0, failed = 0;           // since the start
  std::int64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0, preempted = 0;
  std::int64_t passes = 0;
};

class Engine {
 public:
  // Allocates the KV cache. The model must outlive the engine, with weights at fixed addresses. Throws bad_config for
  // options out of range.
  Engine(const nn::CausalLm& model, const EngineOptions& options);
  // Requests that have not ended are forgotten, without on_end.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request; its number. Throws bad_config for one that can never run: an empty prompt, tokens outside of the
  // vocabulary, more tokens than context or cache hold, sampling options or adapter out of range, a grammar that no
  // token of the vocabulary begins. Any thread.
  std::uint64_t submit(EngineRequest request);
  // Ends a request that has not ended. Any thread.
  void cancel(std::uint64_t request);
  // One pass; false if nothing is left to do. One thread at a time.
  bool step();
  // step(), but a pass that throws fails its requests (EndReason::failed), and the engine continues; of slices of a
  // model it throws.
  bool try_step();
  // Such steps until `stop` is requested; sleeps while there is nothing to do.
  void run(const std::stop_token& stop);
  [[nodiscard]] EngineStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quench
