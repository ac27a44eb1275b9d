#include "core/number/moment_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/system/check.h"

namespace quench {
namespace {

// linspace(0.1, 1)[j], from both ends with FMA: bit-identical to PyTorch.
float linspace_element(int j, int n) {
  const float step = (1.0f - 0.1f) / static_cast<float>(n - 1);
  return j < n / 2 ? std::fma(step, static_cast<float>(j), 0.1f) : std::fma(-step, static_cast<float>(n - 1 - j), 1.0f);
}

// Decades 10^-(decades-1)..10^0, each with twice the values of the one below, optional negatives, 0 and 1.
void fill_dynamic(MomentTable& table, bool is_signed, int decades, int bits) {
  int count = 0;
  for (int i = 0; i < decades; ++i) {
    const int n = (1 << (i + bits - 1 - decades + (is_signed ? 0 : 1))) + 1;
    const auto decade = static_cast<float>(std::pow(10.0, i - (decades - 1)));
    for (int j = 0; j + 1 < n; ++j) {
      const float value = (linspace_element(j, n) + linspace_element(j + 1, n)) / 2 * decade;
      table.values[count++] = value;
      if (is_signed) table.values[count++] = -value;
    }
  }
  table.values[count++] = 0.0f;
  table.values[count++] = 1.0f;
  table.size = count;
  std::sort(table.values, table.values + count);
}

// Order-preserving.
std::int32_t ordered(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x);
  return bits >= 0 ? bits : std::numeric_limits<std::int32_t>::min() - bits;
}
float from_ordered(std::int32_t key) {
  return std::bit_cast<float>(key >= 0 ? key : std::numeric_limits<std::int32_t>::min() - key);
}

// Smallest f32 nearer to `up`.
float upper_threshold(float down, float up) {
  std::int32_t low = ordered(down), high = ordered(up);  // invariant: false at low, true at high
  while (high - low > 1) {
    const std::int32_t middle = low + (high - low) / 2;
    if (from_ordered(middle) - down >= 0.5f * (up - down))
      high = middle;
    else
      low = middle;
  }
  return from_ordered(high);
}

MomentTable make_table(MomentFormat format, bool is_signed) {
  MomentTable table;
  if (format == MomentFormat::int8) {
    fill_dynamic(table, is_signed, 7, 8);
  } else if (is_signed) {
    fill_dynamic(table, true, 3, 4);
  } else {
    table.size = 16;
    for (int i = 0; i < 16; ++i) table.values[i] = static_cast<float>(i + 1) / 16;
  }
  table.thresholds[0] = -std::numeric_limits<float>::infinity();
  for (int i = 1; i < table.size; ++i) table.thresholds[i] = upper_threshold(table.values[i - 1], table.values[i]);
  return table;
}

}  // namespace

const MomentTable& moment_table(MomentFormat format, bool is_signed) {
  QUENCH_CHECK(format != MomentFormat::fp8, "moment_table: fp8 has no table");
  static const MomentTable tables[2][2] = {
      {make_table(MomentFormat::int8, false), make_table(MomentFormat::int8, true)},
      {make_table(MomentFormat::int4, false), make_table(MomentFormat::int4, true)}};
  return tables[format == MomentFormat::int4 ? 1 : 0][is_signed ? 1 : 0];
}

}  // namespace quench
