#pragma once
// Random values of new parameters.

#include "core/device/kernel_slot.h"
#include "core/number/normal.h"
#include "core/number/random.h"
#include "core/tensor/tensor.h"

namespace quench {

enum class RandomDistribution { normal, uniform };  // standard normal; uniform on [-1, 1)

struct RandomFillArgs {
  Tensor out;  // f32 or bf16, contiguous
  RandomKey key;
  std::uint64_t first = 0;  // element of the key's draws at out[0]
  RandomDistribution distribution = RandomDistribution::normal;
  float scale = 1.0f;
};

struct RandomDraws {
  float values[4];
};
// Draws of elements 4 * block .. 4 * block + 3.
[[nodiscard]] QUENCH_HOST_DEVICE inline RandomDraws random_draws(const RandomKey& key, std::uint64_t block,
                                                                 RandomDistribution distribution) noexcept {
  const PhiloxBlock words = random_block(key, block);
  if (distribution == RandomDistribution::normal) {
    const NormalPair low = box_muller(words.words[0], words.words[1]),
                     high = box_muller(words.words[2], words.words[3]);
    return {{low.values[0], low.values[1], high.values[0], high.values[1]}};
  }
  RandomDraws draws{};
  for (int i = 0; i < 4; ++i) draws.values[i] = 2.0f * to_uniform(words.words[i]) - 1.0f;
  return draws;
}

extern constinit KernelSlot<RandomFillArgs> random_fill_slot;

// out[i] = scale * draw(key, first + i), rounded once from f32: the same bits on every device.
void random_fill(const RandomFillArgs& args);

}  // namespace quench
