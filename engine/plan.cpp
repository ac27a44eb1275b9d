#include "engine/plan.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/passes.h"

namespace quench {

std::int64_t plan_engine(const nn::CausalLm& model, const EngineOptions& options, std::int64_t prompt_tokens) {
  using nn::kPageTokens;
  QUENCH_CHECK(model.options().device.is_meta() && options.cache_tokens > 0 && prompt_tokens > 0,
               "an engine of {} cached tokens on {}, planned for prompts of {}", options.cache_tokens,
               model.options().device.to_string(), prompt_tokens);
  const auto pages_for = [](std::int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; };
  const std::int64_t pages = pages_for(options.cache_tokens), slots = options.max_sequences,
                     slot_pages = std::min(pages, pages_for(model.config().context_length()));
  EnginePasses passes(model, slots, pages, slot_pages, options.adapters > 0);
  const std::int64_t prompt = std::min(prompt_tokens, slot_pages * kPageTokens - 1);
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(prompt));
  std::vector<std::int32_t> places(static_cast<std::size_t>(slot_pages));
  std::iota(places.begin(), places.end(), 0);
  const SamplingRow sampling;
  std::vector<TokenChunk> chunks;
  std::int64_t left = options.prefill_tokens;
  for (std::int64_t slot = 0; slot < slots && left > 0; ++slot) {
    const auto count = static_cast<std::size_t>(std::min(left, prompt));
    chunks.push_back({.slot = slot,
                      .tokens = std::span(tokens).first(count),
                      .pages = places,
                      .sampling = count == tokens.size() ? &sampling : nullptr});
    left -= static_cast<std::int64_t>(count);
  }
  (void)passes.run_chunks(chunks, false);
  if (passes.decodes()) {
    std::vector<DecodeRow> rows;
    for (std::int64_t slot = 0; slot < slots; ++slot) rows.push_back({.slot = slot, .position = prompt});
    (void)passes.decode(rows, false);
  }
  return pages * kPageTokens * nn::KvCache::bytes_per_token(model.config(), model.options().dtype, model.kv_cache());
}

}  // namespace quench
