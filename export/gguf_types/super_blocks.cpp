#include "export/gguf_types/super_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/number/bounded_code.h"
#include "core/number/float4.h"

namespace quench {
namespace {

int nearest(float x, int low, int high) {
  return bounded_code(std::nearbyint(x), low, high);
}

struct Line {
  float scale = 0, minimum = 0;  // x ~ code * scale - minimum
};

// Magnitude plus RMS.
void error_weights(const float* x, int n, float* weights) {
  float squares = 0;
  for (int i = 0; i < n; ++i) squares += x[i] * x[i];
  const float mean = std::sqrt(squares / static_cast<float>(n));
  for (int i = 0; i < n; ++i) weights[i] = mean + std::abs(x[i]);
}

constexpr int kFour = 32, kFourMost = 15;

double line_error(const float* x, const float* weights, double scale, double minimum) {
  double error = 0;
  for (int i = 0; i < kFour; ++i) {
    const double code = scale > 0 ? nearest(static_cast<float>((x[i] + minimum) / scale), 0, kFourMost) : 0;
    const double difference = scale * code - minimum - x[i];
    error += weights[i] * difference * difference;
  }
  return error;
}

// Through the smallest and largest element (or 0): a group with a single code, singular in least squares, keeps its
// value.
Line fit_line(const float* x) {
  float weights[kFour];
  error_weights(x, kFour, weights);
  const float low = std::min(*std::min_element(x, x + kFour), 0.0f), high = *std::max_element(x, x + kFour);
  if (high <= low) return {0, -low};
  Line best{(high - low) / static_cast<float>(kFourMost), -low};
  double least = line_error(x, weights, best.scale, best.minimum);
  for (int step = 0; step <= 20; ++step) {
    const float inverse = (static_cast<float>(kFourMost) - 1.0f + 0.1f * static_cast<float>(step)) / (high - low);
    double w = 0, wx = 0, wc = 0, wcc = 0, wcx = 0;
    for (int i = 0; i < kFour; ++i) {
      const double code = nearest(inverse * (x[i] - low), 0, kFourMost), weight = weights[i];
      w += weight;
      wx += weight * x[i];
      wc += weight * code;
      wcc += weight * code * code;
      wcx += weight * code * x[i];
    }
    const double determinant = w * wcc - wc * wc;
    if (determinant <= 0) continue;
    double scale = (w * wcx - wx * wc) / determinant, offset = (wcc * wx - wc * wcx) / determinant;
    if (offset > 0) {
      offset = 0;
      scale = wcx / wcc;
    }
    if (!(scale > 0)) continue;
    const double error = line_error(x, weights, scale, -offset);
    if (error < least) {
      least = error;
      best = {static_cast<float>(scale), static_cast<float>(-offset)};
    }
  }
  return best;
}

// In the block's units: neighbouring multiples of least error. Rounding down clips the largest elements.
struct SixBitLine {
  int scale = 0, minimum = 0;
};

SixBitLine round_line(const float* x, const Line& line, float unit, float minimum_unit) {
  float weights[kFour];
  error_weights(x, kFour, weights);
  const auto below = [](float value, float step) {
    return step > 0 ? std::min(63, static_cast<int>(value / step)) : 0;
  };
  const int scale = below(line.scale, unit), minimum = below(line.minimum, minimum_unit);
  SixBitLine best;
  double least = INFINITY;
  for (int s = scale; s <= std::min(63, unit > 0 ? scale + 1 : 0); ++s)
    for (int m = minimum; m <= std::min(63, minimum_unit > 0 ? minimum + 1 : 0); ++m) {
      const double error = line_error(x, weights, unit * static_cast<float>(s), minimum_unit * static_cast<float>(m));
      if (error < least) {
        least = error;
        best = {s, m};
      }
    }
  return best;
}

// Not 0 if any group has a scale.
float stored_unit(float largest, float steps) {
  constexpr float kSmallestHalf = 0x1p-24f;
  return largest > 0 ? std::max(float(float16(largest / steps)), kSmallestHalf) : 0.0f;
}

// Eight each, in 12 bytes.
void put_six_bits(const int* scales, const int* minima, std::uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<std::uint8_t>(scales[j] | (scales[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<std::uint8_t>(minima[j] | (minima[j + 4] >> 4) << 6);
    out[j + 8] = static_cast<std::uint8_t>((scales[j + 4] & 0xF) | (minima[j + 4] & 0xF) << 4);
  }
}

void get_six_bits(const std::uint8_t* in, int* scales, int* minima) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = in[j] & 63;
    minima[j] = in[j + 4] & 63;
    scales[j + 4] = (in[j + 8] & 0xF) | (in[j] >> 6) << 4;
    minima[j + 4] = in[j + 8] >> 4 | (in[j + 4] >> 6) << 4;
  }
}

constexpr int kSix = 16, kSixGroups = kSuperBlock / kSix;

int six_bit_code(float x, float scale) {
  return scale != 0 ? nearest(x / scale, -32, 31) : 0;
}

// The one of the two neighbouring multiples that has less error.
int round_scale(const float* x, float scale, float unit) {
  const auto below = static_cast<int>(std::clamp(scale / unit, -128.0f, 127.0f));
  int best = 0;
  double least = INFINITY;
  for (const int candidate : {below, below + (scale / unit < 0 ? -1 : 1)}) {
    if (candidate < -128 || candidate > 127) continue;
    const float value = unit * static_cast<float>(candidate);
    double error = 0;
    for (int i = 0; i < kSix; ++i) {
      const double difference = value * static_cast<float>(six_bit_code(x[i], value)) - x[i];
      error += difference * difference;
    }
    if (error < least) {
      least = error;
      best = candidate;
    }
  }
  return best;
}

// Codes -32 to 31.
float fit_scale(const float* x) {
  float largest = 0;
  for (int i = 0; i < kSix; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  if (std::abs(largest) < 1e-30f) return 0;
  float best = 0;
  double most = 0;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = -(32.0f + 0.1f * static_cast<float>(step)) / largest;
    double cx = 0, cc = 0;
    for (int i = 0; i < kSix; ++i) {
      const double code = nearest(inverse * x[i], -32, 31), weight = x[i] * x[i];
      cx += weight * x[i] * code;
      cc += weight * code * code;
    }
    // With least squares the squared error falls by cx^2 / cc.
    if (cc > 0 && cx * cx > most * cc) {
      most = cx * cx / cc;
      best = static_cast<float>(cx / cc);
    }
  }
  return best;
}

}  // namespace

void quantize_q4_k(const float* x, const float* /*importance*/, std::uint8_t* block) {
  constexpr int kGroups = kSuperBlock / kFour;
  Line lines[kGroups];
  float largest_scale = 0, largest_minimum = 0;
  for (int g = 0; g < kGroups; ++g) {
    lines[g] = fit_line(x + g * kFour);
    largest_scale = std::max(largest_scale, lines[g].scale);
    largest_minimum = std::max(largest_minimum, lines[g].minimum);
  }
  const float unit = stored_unit(largest_scale, 63.0f), minimum_unit = stored_unit(largest_minimum, 63.0f);
  int scales[kGroups], minima[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    const SixBitLine rounded = round_line(x + g * kFour, lines[g], unit, minimum_unit);
    scales[g] = rounded.scale;
    minima[g] = rounded.minimum;
  }
  store_half(block, unit);
  store_half(block + 2, minimum_unit);
  put_six_bits(scales, minima, block + 4);
  std::uint8_t codes[kSuperBlock] = {};
  for (int g = 0; g < kGroups; ++g) {
    const float scale = unit * static_cast<float>(scales[g]), minimum = minimum_unit * static_cast<float>(minima[g]);
    if (scale == 0) continue;
    for (int i = g * kFour; i < (g + 1) * kFour; ++i)
      codes[i] = static_cast<std::uint8_t>(nearest((x[i] + minimum) / scale, 0, kFourMost));
  }
  // Two groups share 32 bytes.
  for (int pair = 0; pair < kGroups / 2; ++pair)
    for (int i = 0; i < kFour; ++i)
      block[16 + pair * kFour + i] =
          static_cast<std::uint8_t>(codes[pair * 64 + i] | codes[pair * 64 + kFour + i] << 4);
}

void unpack_q4_k(const std::uint8_t* block, UnpackedBlock& out) {
  constexpr int kGroups = kSuperBlock / kFour;
  int six_scales[kGroups], six_minima[kGroups];
  get_six_bits(block + 4, six_scales, six_minima);
  const float unit = load_half(block), minimum_unit = load_half(block + 2);
  for (int g = 0; g < kGroups; ++g) {
    out.scales[g] = unit * static_cast<float>(six_scales[g]);
    out.offsets[g] = -minimum_unit * static_cast<float>(six_minima[g]);
  }
  for (int pair = 0; pair < kGroups / 2; ++pair)
    for (int i = 0; i < kFour; ++i) {
      const std::uint8_t both = block[16 + pair * kFour + i];
      out.codes[pair * 64 + i] = static_cast<std::int8_t>(both & 0xF);
      out.codes[pair * 64 + kFour + i] = static_cast<std::int8_t>(both >> 4);
    }
}

void quantize_q6_k(const float* x, const float* /*importance*/, std::uint8_t* block) {
  std::memset(block, 0, kQ6_K.bytes);
  float scales[kSixGroups], largest = 0;
  for (int g = 0; g < kSixGroups; ++g) {
    scales[g] = fit_scale(x + g * kSix);
    if (std::abs(scales[g]) > std::abs(largest)) largest = scales[g];
  }
  if (largest == 0) return;
  const float unit = std::copysign(stored_unit(std::abs(largest), 128.0f), -largest);
  store_half(block + 208, unit);
  std::uint8_t codes[kSuperBlock];
  for (int g = 0; g < kSixGroups; ++g) {
    const float* group = x + g * kSix;
    const int scale = round_scale(group, scales[g], unit);
    block[192 + g] = static_cast<std::uint8_t>(scale);
    const float value = unit * static_cast<float>(scale);
    for (int i = 0; i < kSix; ++i) codes[g * kSix + i] = static_cast<std::uint8_t>(six_bit_code(group[i], value) + 32);
  }
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t* c = codes + half * 128;
    for (int i = 0; i < 32; ++i) {
      block[half * 64 + i] = pack_nibbles(c[i], c[i + 64]);
      block[half * 64 + 32 + i] = pack_nibbles(c[i + 32], c[i + 96]);
      block[128 + half * 32 + i] =
          static_cast<std::uint8_t>(c[i] >> 4 | (c[i + 32] >> 4) << 2 | (c[i + 64] >> 4) << 4 | (c[i + 96] >> 4) << 6);
    }
  }
}

void unpack_q6_k(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block + 208);
  for (int g = 0; g < kSixGroups; ++g)
    out.scales[g] = unit * static_cast<float>(static_cast<std::int8_t>(block[192 + g]));
  for (int half = 0; half < 2; ++half) {
    const std::uint8_t *low = block + half * 64, *high = block + 128 + half * 32;
    for (int i = 0; i < 32; ++i) {
      const int quarters[4] = {low[i] & 0xF, low[i + 32] & 0xF, low[i] >> 4, low[i + 32] >> 4};
      for (int q = 0; q < 4; ++q)
        out.codes[half * 128 + q * 32 + i] =
            static_cast<std::int8_t>((quarters[q] | (high[i] >> (2 * q) & 3) << 4) - 32);
    }
  }
}

}  // namespace quench
