#include "engine/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "core/number/random.h"
#include "core/system/check.h"

namespace quench {

void check_sampling_options(const SamplingOptions& o) {
  const auto require = [](bool ok, std::string_view what) {
    if (!ok) QUENCH_FAIL(ErrorCode::bad_config, "{}", what);
  };
  require(std::isfinite(o.temperature) && o.temperature >= 0, "temperature must be 0 (greedy) or positive");
  require(o.top_k >= 0, "top-k must be 0 (all) or positive");
  require(o.top_p > 0 && o.top_p <= 1, "top-p must be in (0, 1]");
  require(o.min_p >= 0 && o.min_p <= 1, "min-p must be in [0, 1]");
  require(std::isfinite(o.repetition_penalty) && o.repetition_penalty > 0, "repetition penalty must be positive");
}

void fail_nonfinite_logit(std::int64_t token, std::int64_t position) {
  QUENCH_FAIL(ErrorCode::nonfinite,
              "the model's logits after {} tokens are not finite, the first that of token {}: its weights have NaN or "
              "infinity, or its activations overflow",
              position, token);
}

SamplingRow sampling_row(const SamplingOptions& o, std::int64_t position) {
  // Larger scales leave the largest logits alone, as this one does.
  constexpr double kMostScale = 1e30;
  const auto words = random_block({o.seed, hash64("sample_token"), 0}, static_cast<std::uint64_t>(position));
  const auto clamped = [](double x) {
    return static_cast<float>(std::clamp(x, 1e-30, static_cast<double>(std::numeric_limits<float>::max())));
  };
  return {.scale = o.temperature == 0
                       ? 0.0f
                       : static_cast<float>(std::min(kMostScale, std::numbers::log2e_v<double> / o.temperature)),
          .top_p = static_cast<float>(o.top_p),
          .min_p = static_cast<float>(o.min_p),
          .penalty = clamped(o.repetition_penalty),
          .top_k = static_cast<std::int32_t>(std::min<std::int64_t>(o.top_k, std::numeric_limits<std::int32_t>::max())),
          .uniform = std::uint64_t{words[0]} << 32 | words[1]};
}

std::int32_t sample_token(std::span<const float> logits, std::span<const std::int32_t> seen,
                          const SamplingOptions& options, std::int64_t position,
                          std::span<const std::int32_t> allowed) {
  QUENCH_CHECK(!logits.empty(), "sample_token: no logits");
  const auto vocabulary = static_cast<std::int64_t>(logits.size());
  const SamplingRow row = sampling_row(options, position);
  const Tensor rows = Tensor::empty({1, sizeof(SamplingRow)}, DType::u8),
               sampled = Tensor::empty({1, sizeof(SampledRow)}, DType::u8), token = Tensor::empty({1}, DType::i32);
  std::memcpy(rows.raw_data(), &row, sizeof row);
  Tensor mask;
  if (options.repetition_penalty != 1.0) {
    mask = Tensor::zeros({1, (vocabulary + 31) / 32}, DType::i32);
    for (const std::int32_t one : seen) {
      if (one < 0 || one >= vocabulary) continue;
      auto& word = mask.data<std::int32_t>()[one / 32];
      word = static_cast<std::int32_t>(static_cast<std::uint32_t>(word) | 1u << one % 32);
    }
  }
  sample_tokens({.logits = Tensor::from_host(const_cast<float*>(logits.data()), {1, vocabulary}, DType::f32),
                 .rows = rows,
                 .tokens = token,
                 .seen = mask,
                 .sampled = sampled,
                 .allowed = allowed.empty()
                                ? Tensor()
                                : Tensor::from_host(const_cast<std::int32_t*>(allowed.data()),
                                                    {1, static_cast<std::int64_t>(allowed.size())}, DType::i32)});
  const auto& result = *reinterpret_cast<const SampledRow*>(sampled.raw_data());
  if (result.first_nonfinite >= 0) fail_nonfinite_logit(result.first_nonfinite, position);
  return result.token;
}

}  // namespace quench
