#include "core/gguf_types/affine_super_blocks.h"

#include "core/gguf_types/block_fits.h"

namespace quench {
namespace {

// Numbers of a block whose groups one thread takes.
template <class Fit>
struct FittedBlock {
  AffineGroups<Fit::kGroups> groups;
  std::uint8_t codes[kSuperBlock];

  FittedBlock(const float* x, const float* importance) {
    const GroupedBlock<Fit::kSize, Fit::kGroups, typename Fit::PlainWeights> block(x, importance);
    groups = Fit::find(SerialTeam<Fit::kGroups>(), block.x, block.weights);
    for (int g = 0; g < Fit::kGroups; ++g) {
      const Line line = groups.line(g);
      const float inverse = line.inverse();
      for (int i = 0; i < Fit::kSize; ++i)
        codes[g * Fit::kSize + i] = static_cast<std::uint8_t>(line.code(block.x[g][i], inverse, Fit::kMostCode));
    }
  }
};

// Eight 6-bit scales and minima in 12 bytes.
void put_scales_and_minima(const int* scales, const int* minima, std::uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<std::uint8_t>(scales[j] | (scales[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<std::uint8_t>(minima[j] | (minima[j + 4] >> 4) << 6);
    out[j + 8] = static_cast<std::uint8_t>((scales[j + 4] & 0xF) | (minima[j + 4] & 0xF) << 4);
  }
}

void get_scales_and_minima(const std::uint8_t* in, int* scales, int* minima) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = in[j] & 63;
    minima[j] = in[j + 4] & 63;
    scales[j + 4] = (in[j + 8] & 0xF) | (in[j] >> 6) << 4;
    minima[j + 4] = in[j + 8] >> 4 | (in[j + 4] >> 6) << 4;
  }
}

void put_head(const AffineGroups<8>& groups, std::uint8_t* block) {
  store_half(block, groups.unit);
  store_half(block + 2, groups.minimum_unit);
  put_scales_and_minima(groups.scales, groups.minima, block + 4);
}

void get_head(const std::uint8_t* block, UnpackedBlock& out) {
  int scales[8], minima[8];
  get_scales_and_minima(block + 4, scales, minima);
  const float unit = load_half(block), minimum_unit = load_half(block + 2);
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = unit * static_cast<float>(scales[g]);
    out.offsets[g] = -(minimum_unit * static_cast<float>(minima[g]));
  }
}

constexpr int kPair = 64;  // elements that share 32 bytes

}  // namespace

void unpack_q2_k(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block + 80), minimum_unit = load_half(block + 82);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = unit * static_cast<float>(block[g] & 0xF);
    out.offsets[g] = -(minimum_unit * static_cast<float>(block[g] >> 4));
  }
  get_quarters(block + 16, out.codes);
}

void unpack_q4_k(const std::uint8_t* block, UnpackedBlock& out) {
  get_head(block, out);
  for (int pair = 0; pair < 4; ++pair) get_halves(block + 16 + pair * 32, kPair, out.codes + pair * kPair);
}

void unpack_q5_k(const std::uint8_t* block, UnpackedBlock& out) {
  get_head(block, out);
  for (int pair = 0; pair < 4; ++pair) get_halves(block + 48 + pair * 32, kPair, out.codes + pair * kPair);
  for (int i = 0; i < kSuperBlock; ++i)
    out.codes[i] = static_cast<std::int8_t>(out.codes[i] | plane_bit(block + 16, i) << 4);
}

void quantize_q2_k(const float* x, const float* importance, std::uint8_t* block) {
  const FittedBlock<Q2_KFit> found(x, importance);
  for (int g = 0; g < Q2_KFit::kGroups; ++g)
    block[g] = static_cast<std::uint8_t>(found.groups.scales[g] | found.groups.minima[g] << 4);
  put_quarters(found.codes, block + 16);
  store_half(block + 80, found.groups.unit);
  store_half(block + 82, found.groups.minimum_unit);
}

void quantize_q4_k(const float* x, const float* importance, std::uint8_t* block) {
  const FittedBlock<Q4_KFit> found(x, importance);
  put_head(found.groups, block);
  for (int pair = 0; pair < 4; ++pair) put_halves(found.codes + pair * kPair, kPair, block + 16 + pair * 32);
}

void quantize_q5_k(const float* x, const float* importance, std::uint8_t* block) {
  const FittedBlock<Q5_KFit> found(x, importance);
  put_head(found.groups, block);
  for (int pair = 0; pair < 4; ++pair) put_halves(found.codes + pair * kPair, kPair, block + 48 + pair * 32);
  std::uint8_t high[kSuperBlock];
  for (int i = 0; i < kSuperBlock; ++i) high[i] = found.codes[i] >= 16;
  put_planes(high, block + 16);
}

}  // namespace quench
