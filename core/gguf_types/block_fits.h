#pragma once
// Fits of GGUF block types: the numbers of a block with the least weighted squared error, and its elements rounded to
// the values that a reader of the file computes. A fit works on groups of kSize elements, which share a scale. find()
// returns the scales; with them round() leaves the values in place of the elements, put() codes and scales of the
// thread's groups in the block's numbers. The same on CPU and GPU, bit for bit.

#include "core/gguf_types/affine_search.h"
#include "core/gguf_types/block_numbers.h"
#include "core/gguf_types/nonlinear_grid.h"
#include "core/gguf_types/super_scales.h"

namespace quench {

// Q2_K, Q4_K, Q5_K.
template <int Size, int MostCode, int MostScale, class Starts, class Units, class Weights = EvenWeights>
struct AffineSuperFit {
  static constexpr int kSize = Size, kGroups = 256 / Size, kMostCode = MostCode;
  using PlainWeights = Weights;

  template <class Team>
  static QUENCH_TEAM_INLINE auto find(const Team& team, const float (&x)[Team::kOwn][Size],
                                      const float (&weights)[Team::kOwn][Size]) {
    return AffineSearch<Size, MostCode, MostScale, Starts, Units, Team>(team, x, weights).find();
  }
  template <int Own>
  static QUENCH_TEAM_INLINE void round(const AffineGroups<Own>& found, float (&x)[Own][Size]) {
    for (int g = 0; g < Own; ++g) round_to_line(x[g], found.line(g), MostCode);
  }
  template <class Team>
  static QUENCH_TEAM_INLINE void put(const Team& team, const AffineGroups<Team::kOwn>& found,
                                     const float (&x)[Team::kOwn][Size], BlockNumbers<kSize, kGroups>& out) {
    if (team.leads()) {
      out.unit = found.unit;
      out.minimum = found.minimum_unit;
    }
    for (int g = 0; g < Team::kOwn; ++g) {
      out.scales[team.group(g)] = static_cast<std::int8_t>(found.scales[g]);
      out.minima[team.group(g)] = static_cast<std::int8_t>(found.minima[g]);
      put_line_codes(x[g], found.line(g), MostCode, out.codes + team.group(g) * Size);
    }
  }
};

// Q3_K, Q6_K, IQ4_XS: scales from Low to High; starts as those of find_scale(), with a reach in hundredths.
template <class Grid, int Size, int Low, int High, int Steps, int Reach, int UnitStarts, class Weights = EvenWeights>
struct ScaledSuperFit {
  static constexpr int kSize = Size, kGroups = 256 / Size;
  using PlainWeights = Weights;
  using Values = Grid;

  template <class Team>
  static QUENCH_TEAM_INLINE auto find(const Team& team, const float (&x)[Team::kOwn][Size],
                                      const float (&weights)[Team::kOwn][Size]) {
    return SuperScales<Grid, Size, Low, High, Team>(team, x, weights, Steps, Reach / 100.0f).find(UnitStarts);
  }
  template <int Own>
  static QUENCH_TEAM_INLINE void round(const ScaledGroups<Own>& found, float (&x)[Own][Size]) {
    for (int g = 0; g < Own; ++g) round_to_scale<Grid>(x[g], found.scale(g));
  }
  template <class Team>
  static QUENCH_TEAM_INLINE void put(const Team& team, const ScaledGroups<Team::kOwn>& found,
                                     const float (&x)[Team::kOwn][Size], BlockNumbers<kSize, kGroups>& out) {
    if (team.leads()) out.unit = found.unit;
    for (int g = 0; g < Team::kOwn; ++g) {
      out.scales[team.group(g)] = static_cast<std::int8_t>(found.scales[g]);
      put_scaled_codes<Grid>(x[g], found.scale(g), out.codes + team.group(g) * Size);
    }
  }
};

// Blocks of 32 with an f16 scale: Q4_0 with importance, Q5_0, IQ4_NL.
template <class Grid, int Steps, int Reach, class Weights = EvenWeights>
struct ScaledFit {
  static constexpr int kSize = 32, kGroups = 1;
  using PlainWeights = Weights;
  using Values = Grid;

  template <class Team>
  static QUENCH_TEAM_INLINE float find(const Team&, const float (&x)[1][32], const float (&weights)[1][32]) {
    return stored_unit(find_scale<Grid, 32>(x[0], weights[0], Steps, Reach / 100.0f));
  }
  static QUENCH_TEAM_INLINE void round(float scale, float (&x)[1][32]) { round_to_scale<Grid>(x[0], scale); }
  template <class Team>
  static QUENCH_TEAM_INLINE void put(const Team&, float scale, const float (&x)[1][32], BlockNumbers<32, 1>& out) {
    out.unit = scale;
    put_scaled_codes<Grid>(x[0], scale, out.codes);
  }
};

// Blocks of 32 with an f16 scale and minimum: Q4_1, Q5_1.
template <int MostCode>
struct AffineFit {
  static constexpr int kSize = 32, kGroups = 1, kMostCode = MostCode;
  using PlainWeights = EvenWeights;

  template <class Team>
  static QUENCH_TEAM_INLINE Line find(const Team&, const float (&x)[1][32], const float (&weights)[1][32]) {
    const Line line = LineSearch<32>(x[0], weights[0], MostCode, false).template find<FineStarts>();
    const Line stored{stored_unit(line.scale), static_cast<float>(float16(line.offset))};
    // The offset that suits the stored scale and its codes.
    const float inverse = stored.inverse();
    float sums[2];
    lane_sums<2, 32>(
        [&](int i, float(&term)[2]) {
          term[0] = weights[0][i];
          term[1] = weights[0][i] * (x[0][i] - stored.scale * stored.code(x[0][i], inverse, MostCode));
        },
        sums);
    const Line moved{stored.scale, static_cast<float>(float16(sums[1] / sums[0]))};
    return line_error<32>(x[0], weights[0], moved, MostCode) < line_error<32>(x[0], weights[0], stored, MostCode)
               ? moved
               : stored;
  }
  static QUENCH_TEAM_INLINE void round(Line line, float (&x)[1][32]) { round_to_line(x[0], line, MostCode); }
  template <class Team>
  static QUENCH_TEAM_INLINE void put(const Team&, Line line, const float (&x)[1][32], BlockNumbers<32, 1>& out) {
    out.unit = line.scale;
    out.minimum = line.offset;
    put_line_codes(x[0], line, MostCode, out.codes);
  }
};

// ggml's reference of Q8_0: amax over 127. Weights have no effect.
struct Q8_0Fit {
  static constexpr int kSize = 32, kGroups = 1;
  using PlainWeights = EvenWeights;

  // Before it is stored as f16.
  template <class Team>
  static QUENCH_TEAM_INLINE float find(const Team&, const float (&x)[1][32], const float (&)[1][32]) {
    float amax = 0;
    for (int i = 0; i < 32; ++i) amax = magnitude(x[0][i]) > amax ? magnitude(x[0][i]) : amax;
    return amax / 127.0f;
  }
  // Ties away from 0.
  static QUENCH_TEAM_INLINE float code(float scaled) {
    const float bounded = scaled > -128.0f ? (scaled < 127.0f ? scaled : 127.0f) : -128.0f;
    const float size = magnitude(bounded), even = nearest_code(size, 0.0f, 128.0f);
    const float rounded = size - even == 0.5f ? even + 1.0f : even;
    return bounded < 0 ? 0.0f - rounded : rounded;  // no -0
  }
  static QUENCH_TEAM_INLINE void round(float scale, float (&x)[1][32]) {
    const float inverse = inverse_scale(scale), stored = static_cast<float>(float16(scale));
    for (int i = 0; i < 32; ++i) x[0][i] = stored * code(x[0][i] * inverse);
  }
  template <class Team>
  static QUENCH_TEAM_INLINE void put(const Team&, float scale, const float (&x)[1][32], BlockNumbers<32, 1>& out) {
    const float inverse = inverse_scale(scale);
    out.unit = scale;
    for (int i = 0; i < 32; ++i) out.codes[i] = static_cast<std::uint8_t>(static_cast<int>(code(x[0][i] * inverse)));
  }
};

// ggml's reference of Q4_0: the element whose absolute value is the amax, with its sign, over -8. Weights have no
// effect.
struct PlainQ4_0Fit {
  static constexpr int kSize = 32, kGroups = 1;
  using PlainWeights = EvenWeights;

  // Before it is stored as f16.
  template <class Team>
  static QUENCH_TEAM_INLINE float find(const Team&, const float (&x)[1][32], const float (&)[1][32]) {
    float largest = 0;
    for (int i = 0; i < 32; ++i)
      if (magnitude(x[0][i]) > magnitude(largest)) largest = x[0][i];
    return largest / -8.0f;
  }
  // 0 to 15.
  static QUENCH_TEAM_INLINE int code(float scaled) {
    const float moved = scaled + 8.5f;
    return moved >= 0 ? (moved >= 15 ? 15 : static_cast<int>(moved)) : 0;
  }
  static QUENCH_TEAM_INLINE void round(float scale, float (&x)[1][32]) {
    const float inverse = inverse_scale(scale), stored = static_cast<float>(float16(scale));
    for (int i = 0; i < 32; ++i) x[0][i] = stored * static_cast<float>(code(x[0][i] * inverse) - 8);
  }
  template <class Team>
  static QUENCH_TEAM_INLINE void put(const Team&, float scale, const float (&x)[1][32], BlockNumbers<32, 1>& out) {
    const float inverse = inverse_scale(scale);
    out.unit = scale;
    for (int i = 0; i < 32; ++i) out.codes[i] = static_cast<std::uint8_t>(code(x[0][i] * inverse));
  }
};

// TQ1_0, TQ2_0: x ~ scale * digit, digits -1, 0, 1, exactly the best scale. For a set of elements with digit 1 or -1,
// least squares gives the weighted mean of |x|; the best set is {|x| >= t} for some t, and each |x| of the block is
// tried as t. Element i of group g is element 8 i + g of the block.
struct TernaryFit {
  static constexpr int kSize = 32, kGroups = 8;
  using PlainWeights = EvenWeights;

  // size(i, own), weight(i, own): magnitude and error weight of element i of an own group.
  template <class Team, class Size, class Weight>
  static QUENCH_TEAM_INLINE float find_scale(const Team& team, const Size& size, const Weight& weight) {
    float most = 0, scale = 0;
    for (int i = 0; i < kSize; ++i)
      for (int group = 0; group < kGroups; ++group) {
        const float least = team.of_group(group, [&](int own) { return size(i, own); });
        float w[Team::kOwn] = {}, wx[Team::kOwn] = {};
        for (int j = 0; j < kSize; ++j) {
          QUENCH_LANE_LOOP
          for (int own = 0; own < Team::kOwn; ++own) {
            const float taken = size(j, own) >= least ? weight(j, own) : 0.0f;
            w[own] += taken;
            wx[own] += taken * size(j, own);
          }
        }
        const float weights = team.tree_sum(w), sum = team.tree_sum(wx);
        if (!(sum / weights * sum > most)) continue;
        most = sum / weights * sum;
        scale = sum / weights;
      }
    return stored_unit(scale);
  }
  static QUENCH_TEAM_INLINE float digit(float x, float scale) {
    return scale > 0 && is_finite(scale) ? nearest_code(x / scale, -1, 1) : 0.0f;
  }
  // One group a thread.
  template <class Team>
  static QUENCH_TEAM_INLINE float find(const Team& team, const float (&x)[1][32], const float (&weights)[1][32]) {
    return find_scale(
        team, [&](int i, int) { return magnitude(x[0][i]); }, [&](int i, int) { return weights[0][i]; });
  }
  static QUENCH_TEAM_INLINE void round(float scale, float (&x)[1][32]) {
    for (int i = 0; i < kSize; ++i) x[0][i] = scale * digit(x[0][i], scale);
  }
  [[nodiscard]] static QUENCH_TEAM_INLINE std::uint8_t code(float x, float scale) {
    return static_cast<std::uint8_t>(static_cast<int>(digit(x, scale)) + 1);
  }
  template <class Team>
  static QUENCH_TEAM_INLINE void put(const Team& team, float scale, const float (&x)[1][32], BlockNumbers<32, 8>& out) {
    if (team.leads()) out.unit = scale;
    for (int i = 0; i < kSize; ++i) out.codes[i * kGroups + team.group(0)] = code(x[0][i], scale);
  }
};

// Starts of lines for four codes.
struct TwoBitStarts {
  static constexpr int kCount = 18;
  [[nodiscard]] static QUENCH_TEAM_INLINE LineStart at(int i) {
    constexpr LineStart kStarts[kCount] = {{-0.5f, 0},    {-0.1f, 0},    {0.3f, 0},     {0.7f, 0},     {1.1f, 0},
                                           {1.6f, 0},     {-0.3f, 0.2f}, {0.1f, 0.2f},  {0.5f, 0.2f},  {0.9f, 0.2f},
                                           {1.3f, 0.2f},  {1.9f, 0.2f},  {0.0f, 0.45f}, {0.4f, 0.45f}, {0.8f, 0.45f},
                                           {1.2f, 0.45f}, {1.7f, 0.45f}, {2.3f, 0.45f}};
    return kStarts[i];
  }
};
struct WholeUnit {
  static constexpr int kCount = 1;
  [[nodiscard]] static QUENCH_TEAM_INLINE float at(int) { return 1.0f; }
};
struct CoarseUnits {
  static constexpr int kCount = 4;
  [[nodiscard]] static QUENCH_TEAM_INLINE float at(int i) {
    constexpr float kUnits[kCount] = {1.0f, 0.93f, 0.86f, 1.07f};
    return kUnits[i];
  }
};

using Q4_0Fit = ScaledFit<IntegerGrid<-8, 7>, 9, 20>;
using Q4_1Fit = AffineFit<15>;
using Q5_0Fit = ScaledFit<IntegerGrid<-16, 15>, 8, 10, MagnitudeWeights>;
using Q5_1Fit = AffineFit<31>;
using Q2_KFit = AffineSuperFit<16, 3, 15, TwoBitStarts, CoarseUnits, MagnitudeWeights>;
using Q3_KFit = ScaledSuperFit<IntegerGrid<-4, 3>, 16, -32, 31, 7, 25, 3, MagnitudeWeights>;
using Q4_KFit = AffineSuperFit<32, 15, 63, FineStarts, WholeUnit>;
using Q5_KFit = AffineSuperFit<32, 31, 63, FineStarts, WholeUnit>;
using Q6_KFit = ScaledSuperFit<IntegerGrid<-32, 31>, 16, -128, 127, 6, 3, 1>;
using Iq4NlFit = ScaledFit<NonlinearGrid, 7, 20, MagnitudeWeights>;
using Iq4XsFit = ScaledSuperFit<NonlinearGrid, 32, -32, 31, 7, 20, 1, MagnitudeWeights>;

}  // namespace quench
