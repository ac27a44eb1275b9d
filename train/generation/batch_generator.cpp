#include "train/generation/batch_generator.h"

#include <algorithm>

#include "engine/engine.h"
#include "nn/attention/paged_keys.h"

namespace quench {

void generate_batch(const nn::CausalLm& model, std::span<const BatchPrompt> prompts, const GenerationOptions& options,
                    std::int64_t width, const std::function<void(std::size_t, const GenerationResult&)>& on_result,
                    const std::function<bool(std::size_t, std::int32_t)>& on_token) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, width > 0, "texts side by side: {}, expected at least 1", width);
  std::int64_t longest = 1;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    GenerationOptions own = options;
    own.max_new_tokens = prompts[i].max_new_tokens;
    try {
      check_generation(model, prompts[i].tokens, own);
    } catch (const Error& error) {
      QUENCH_FAIL(error.code(), "prompt {}: {}", i + 1, error.what());
    }
    longest = std::max(longest, static_cast<std::int64_t>(prompts[i].tokens.size()) + own.max_new_tokens);
  }
  if (prompts.empty()) return;
  width = std::min(width, static_cast<std::int64_t>(prompts.size()));
  // A page more than its tokens for each sequence.
  Engine engine(model, {.max_sequences = width, .cache_tokens = width * (longest + nn::kPageTokens)});
  std::string failure;
  ErrorCode code{};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EngineRequest request{.prompt = prompts[i].tokens,
                          .max_new_tokens = prompts[i].max_new_tokens,
                          .sampling = options.sampling,
                          .stop_tokens = options.stop_tokens,
                          .grammar = options.grammar,
                          .on_end = [&, i](const EngineResult& result) {
                            if (result.reason == EndReason::failed && failure.empty()) {
                              failure = result.error;
                              code = result.code;
                            } else if (failure.empty()) {
                              on_result(i, {.tokens = result.tokens,
                                            .stopped = result.reason == EndReason::stop_token,
                                            .prompt_seconds = result.prompt_seconds,
                                            .decode_seconds = result.decode_seconds});
                            }
                          }};
    if (on_token)
      request.on_token = [&, i](const SampledToken& token) {
        const bool stops = std::ranges::find(options.stop_tokens, token.token) != options.stop_tokens.end();
        return stops || on_token(i, token.token);
      };
    (void)engine.submit(std::move(request));
  }
  while (engine.step() && failure.empty()) {
  }
  if (!failure.empty()) QUENCH_FAIL(code, "{}", failure);
}

}  // namespace quench
