#include "apps/serve/api/prompt_scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "autograd/tape.h"
#include "core/system/check.h"
#include "engine/sampling.h"
#include "nn/modules/adapter_rows.h"

namespace quench::serve {
namespace {

constexpr std::int64_t kMostLogitBytes = std::int64_t{64} << 20;  // at once

ScoredToken score(std::span<const float> logits, std::int32_t token, std::size_t top, std::int64_t position) {
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i])) fail_nonfinite_logit(static_cast<std::int64_t>(i), position);
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  const double log_sum = largest + std::log(sum);
  const auto logprob = [&](std::size_t i) { return static_cast<float>(static_cast<double>(logits[i]) - log_sum); };
  ScoredToken result{.token = token, .logprob = logprob(static_cast<std::size_t>(token)), .top = {}};
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  top = std::min(top, order.size());
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(top), [&](auto a, auto b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (std::size_t i = 0; i < top; ++i)
    result.top.push_back({.token = order[i], .logprob = logprob(static_cast<std::size_t>(order[i]))});
  return result;
}

}  // namespace

std::vector<ScoredToken> score_prompt(const nn::CausalLm& model, std::span<const std::int32_t> prompt, std::int64_t top,
                                      std::int64_t adapter) {
  std::vector<ScoredToken> result{{.token = prompt.front(), .logprob = {}, .top = {}}};
  const auto tokens = static_cast<std::int64_t>(prompt.size());
  if (tokens == 1) return result;
  QUENCH_CHECK_AS(ErrorCode::bad_config, model.tensor_exchange() == nullptr,
                  "log-probabilities of the prompt are not available where several processes hold the model");
  const autograd::NoGrad no_grad;
  const Device device = model.options().device;
  nn::ForwardContext context = model.make_context({SequenceRange{0, tokens, 0, tokens}}, tokens);
  std::optional<nn::KvCache> cache;
  if (model.kv_cache().format != nullptr) context.cache = &cache.emplace(model.make_cache(tokens));
  const std::vector<std::int32_t> adapters(prompt.size(), static_cast<std::int32_t>(adapter));
  const nn::AdapterRowsScope scope(adapter < 0 ? Tensor()
                                               : Tensor::from_values<std::int32_t>({tokens}, adapters).to(device));
  const Tensor hidden = model.hidden(Tensor::from_values<std::int32_t>({tokens}, prompt).to(device), context).value();
  const std::int64_t vocabulary = model.config().vocab_size;
  const std::int64_t rows = std::max<std::int64_t>(1, kMostLogitBytes / (4 * vocabulary));
  for (std::int64_t begin = 0; begin < tokens - 1; begin += rows) {
    const std::int64_t count = std::min(rows, tokens - 1 - begin);
    const Tensor logits = model.logits(autograd::Variable(hidden.narrow(0, begin, count))).to(Device{});
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t position = begin + row + 1;
      const std::span values(logits.data<float>() + row * vocabulary, static_cast<std::size_t>(vocabulary));
      result.push_back(
          score(values, prompt[static_cast<std::size_t>(position)], static_cast<std::size_t>(top), position));
    }
  }
  return result;
}

}  // namespace quench::serve
