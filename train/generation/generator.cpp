#include "train/generation/generator.h"

#include <algorithm>
#include <chrono>

namespace quench {
namespace {

// Logits of the last of `ids` behind what the cache holds.
Tensor next_logits(const nn::CausalLm& model, nn::KvCache& cache, std::span<const std::int32_t> ids) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  nn::ForwardContext context = model.make_context({{0, tokens, 0, cache.length() + tokens}}, tokens);
  context.cache = &cache;
  const Tensor input = Tensor::from_values<std::int32_t>({tokens}, ids).to(model.options().device);
  const autograd::Variable hidden = model.hidden(input, context);
  cache.advance(tokens);
  const Tensor last = hidden.value().narrow(0, tokens - 1, 1);
  const Tensor logits = model.logits(autograd::Variable(last));
  Tensor result = Tensor::empty_pinned(logits.shape(), DType::f32, logits.device());
  result.copy_from(logits);
  return result;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

GenerationResult generate(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                          const GenerationOptions& options, const std::function<bool(std::int32_t)>& on_token) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !prompt.empty(),
                  "the prompt is empty and the tokenizer adds no beginning-of-sequence token; give a prompt");
  check_sampling_options(options.sampling);
  const auto length = static_cast<std::int64_t>(prompt.size());
  const std::int64_t capacity = length + options.max_new_tokens;
  QUENCH_CHECK_AS(ErrorCode::bad_config, capacity <= model.config().max_position_embeddings,
                  "prompt of {} tokens and {} new ones exceed the model's max_position_embeddings of {}", length,
                  options.max_new_tokens, model.config().max_position_embeddings);
  const autograd::NoGrad no_grad;
  nn::KvCache cache(model.config(), capacity, model.options().dtype, model.options().device);
  // The whole table at once, so that decoding does not remake it token by token.
  (void)model.make_context({{0, 0, 0, capacity}}, 0);

  GenerationResult result;
  std::vector<std::int32_t> seen(prompt.begin(), prompt.end());
  auto start = std::chrono::steady_clock::now();
  Tensor logits = options.max_new_tokens > 0 ? next_logits(model, cache, prompt) : Tensor();
  result.prompt_seconds = seconds_since(start);
  start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < options.max_new_tokens; ++i) {
    const std::span<const float> row(logits.data<float>(), static_cast<std::size_t>(logits.numel()));
    const std::int32_t token = sample_token(row, seen, options.sampling, length + i);
    result.tokens.push_back(token);
    seen.push_back(token);
    result.stopped = std::ranges::find(options.stop_tokens, token) != options.stop_tokens.end();
    if (result.stopped || (on_token && !on_token(token))) break;
    if (i + 1 < options.max_new_tokens) logits = next_logits(model, cache, std::span(&token, 1));
  }
  result.decode_seconds = seconds_since(start);
  return result;
}

}  // namespace quench
