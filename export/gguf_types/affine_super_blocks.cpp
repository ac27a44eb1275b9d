#include "export/gguf_types/affine_super_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "export/gguf_types/line_search.h"

namespace quench {
namespace {

// Integers under two units.
struct AffineBlock {
  float unit = 0, minimum_unit = 0;
  int scales[kMostBlockGroups] = {}, minima[kMostBlockGroups] = {};
  float codes[kSuperBlock] = {};
  double error = 0;
};

template <int Size, int MostCode, int MostScale>
class AffineSearch {
 public:
  static constexpr int kGroups = kSuperBlock / Size;

  AffineSearch(const float* x, const float* importance, std::span<const LineStart> starts) : x_(x) {
    error_weights<kSuperBlock>(importance, weights_);
    for (int g = 0; g < kGroups; ++g) {
      lines_[g] = LineSearch<Size>(x + g * Size, weights_ + g * Size, MostCode, true).find(starts);
      largest_scale_ = std::max(largest_scale_, lines_[g].scale);
      largest_minimum_ = std::max(largest_minimum_, -lines_[g].offset);
    }
  }

  // Units: the largest scale and minimum over MostScale and `shares` of it, each refined by least squares.
  [[nodiscard]] AffineBlock find(std::span<const float> shares) const {
    AffineBlock best;
    bool any = false;
    for (const float share : shares) {
      float unit = stored_unit(largest_scale_ * share / MostScale),
            minimum_unit = stored_unit(largest_minimum_ * share / MostScale);
      for (int pass = 0; pass < 3; ++pass) {
        const AffineBlock now = rounded(unit, minimum_unit);
        if (any && !(now.error < best.error)) break;
        best = now;
        any = true;
        if (!refine(now, unit, minimum_unit)) break;
      }
    }
    return best;
  }

 private:
  [[nodiscard]] AffineBlock rounded(float unit, float minimum_unit) const {
    AffineBlock out{.unit = unit, .minimum_unit = minimum_unit};
    for (int g = 0; g < kGroups; ++g) {
      const float *x = x_ + g * Size, *weights = weights_ + g * Size;
      const auto below = [](float ratio) { return static_cast<int>(nearest_code(ratio - 0.5f, 0, MostScale)); };
      const int scale = unit > 0 ? below(lines_[g].scale / unit) : 0;
      double least = INFINITY;
      Line chosen;
      const auto take = [&](int s, int m) {
        const Line line{unit * static_cast<float>(s), -minimum_unit * static_cast<float>(m)};
        const double error = line_error<Size>(x, weights, line, MostCode);
        if (!(error < least)) return;
        least = error;
        chosen = line;
        out.scales[g] = s;
        out.minima[g] = m;
      };
      for (int s = std::max(0, scale - (MostScale < 16)); s <= std::min(MostScale, unit > 0 ? scale + 1 : 0); ++s) {
        if (!(minimum_unit > 0)) {
          take(s, 0);
          continue;
        }
        // The minimum that suits this scale.
        const Line line{unit * static_cast<float>(s), lines_[g].offset};
        float codes[Size];
        (void)line_error<Size>(x, weights, line, MostCode, codes);
        float w = 0, excess = 0;
        for (int i = 0; i < Size; ++i) {
          w += weights[i];
          excess += weights[i] * (line.scale * codes[i] - x[i]);
        }
        const int suited = below(excess / w / minimum_unit), own = below(-lines_[g].offset / minimum_unit);
        for (int m = std::min(suited, own); m <= std::min(MostScale, std::max(suited, own) + 1); ++m)
          if (m - suited <= 1 || m - own <= 1) take(s, m);
      }
      out.error += line_error<Size>(x, weights, chosen, MostCode, out.codes + g * Size);
    }
    return out;
  }

  // Least squares of both units with all integers kept; whether a stored one changes.
  bool refine(const AffineBlock& block, float& unit, float& minimum_unit) const {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < kSuperBlock; ++i) {
      const double w = weights_[i], a = static_cast<double>(block.scales[i / Size]) * block.codes[i],
                   b = -block.minima[i / Size];
      aa += w * a * a;
      ab += w * a * b;
      bb += w * b * b;
      ax += w * a * x_[i];
      bx += w * b * x_[i];
    }
    const double determinant = aa * bb - ab * ab;
    double next = 0, next_minimum = 0;
    if (determinant > 1e-9 * aa * bb) {
      next = (bb * ax - ab * bx) / determinant;
      next_minimum = (aa * bx - ab * ax) / determinant;
    } else if (aa > 0 && bb == 0) {
      next = ax / aa;
    }
    if (!(next > 0) || next_minimum < 0 || !std::isfinite(next + next_minimum)) return false;
    const float stored = stored_unit(static_cast<float>(next)),
                stored_minimum = stored_unit(static_cast<float>(next_minimum));
    if (stored == unit && stored_minimum == minimum_unit) return false;
    unit = stored;
    minimum_unit = stored_minimum;
    return true;
  }

  const float* x_;
  float weights_[kSuperBlock];
  Line lines_[kGroups];
  float largest_scale_ = 0, largest_minimum_ = 0;
};

constexpr std::array<LineStart, 18> kTwoBitStarts = {{{-0.5f, 0},
                                                      {-0.1f, 0},
                                                      {0.3f, 0},
                                                      {0.7f, 0},
                                                      {1.1f, 0},
                                                      {1.6f, 0},
                                                      {-0.3f, 0.2f},
                                                      {0.1f, 0.2f},
                                                      {0.5f, 0.2f},
                                                      {0.9f, 0.2f},
                                                      {1.3f, 0.2f},
                                                      {1.9f, 0.2f},
                                                      {0.0f, 0.45f},
                                                      {0.4f, 0.45f},
                                                      {0.8f, 0.45f},
                                                      {1.2f, 0.45f},
                                                      {1.7f, 0.45f},
                                                      {2.3f, 0.45f}}};
constexpr std::array kWholeUnit = {1.0f};
constexpr std::array kCoarseUnits = {1.0f, 0.93f, 0.86f, 1.07f};

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

void put_head(const AffineBlock& found, std::uint8_t* block) {
  store_half(block, found.unit);
  store_half(block + 2, found.minimum_unit);
  put_scales_and_minima(found.scales, found.minima, block + 4);
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
  const AffineBlock found = AffineSearch<16, 3, 15>(x, importance, kTwoBitStarts).find(kCoarseUnits);
  for (int g = 0; g < 16; ++g) block[g] = static_cast<std::uint8_t>(found.scales[g] | found.minima[g] << 4);
  std::uint8_t codes[kSuperBlock];
  std::transform(found.codes, found.codes + kSuperBlock, codes, [](float c) { return static_cast<std::uint8_t>(c); });
  put_quarters(codes, block + 16);
  store_half(block + 80, found.unit);
  store_half(block + 82, found.minimum_unit);
}

void quantize_q4_k(const float* x, const float* importance, std::uint8_t* block) {
  const AffineBlock found = AffineSearch<32, 15, 63>(x, importance, kLineStarts).find(kWholeUnit);
  put_head(found, block);
  for (int pair = 0; pair < 4; ++pair) put_halves(found.codes + pair * kPair, kPair, block + 16 + pair * 32);
}

void quantize_q5_k(const float* x, const float* importance, std::uint8_t* block) {
  const AffineBlock found = AffineSearch<32, 31, 63>(x, importance, kLineStarts).find(kWholeUnit);
  put_head(found, block);
  std::uint8_t high[kSuperBlock];
  for (int i = 0; i < kSuperBlock; ++i) high[i] = found.codes[i] >= 16;
  put_planes(high, block + 16);
  for (int pair = 0; pair < 4; ++pair) put_halves(found.codes + pair * kPair, kPair, block + 48 + pair * 32);
}

}  // namespace quench
