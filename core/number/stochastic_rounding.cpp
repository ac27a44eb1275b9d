#include "core/number/stochastic_rounding.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench {

void stochastic_round_bf16(std::span<const float> in, std::span<bfloat16> out, const RandomKey& key,
                           std::uint64_t first) {
  QUENCH_CHECK(in.size() == out.size(), "stochastic_round_bf16: {} values into {}", in.size(), out.size());
  const std::size_t count = in.size();
  std::size_t done = 0;
  const auto round_until = [&](std::size_t end) {
    for (; done < end; ++done) out[done] = stochastic_round_bf16(in[done], key, first + done);
  };
  constexpr auto kBlock = static_cast<std::size_t>(kRoundingsPerBlock);
  round_until(std::min<std::size_t>(count, (kBlock - first % kBlock) % kBlock));
  for (; count - done >= kBlock; done += kBlock) {
    const PhiloxBlock block = random_block(key, (first + done) / kBlock);
    for (std::size_t j = 0; j < kBlock; ++j)
      out[done + j] = stochastic_round_bf16(in[done + j], rounding_bits(block, j));
  }
  round_until(count);
}

}  // namespace quench
