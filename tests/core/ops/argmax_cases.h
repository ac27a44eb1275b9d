#pragma once
// Rows whose largest element is known, for the tests of argmax on the CPU and on a GPU.

#include <limits>
#include <string>

#include "tests/core/ops/op_testing.h"

namespace quench::testing {

struct ArgmaxCase {
  std::string name;
  std::vector<float> row;
  std::int32_t index, first_nonfinite;
};

inline std::vector<ArgmaxCase> argmax_cases() {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  return {{"one", {-5}, 0, -1},
          {"equal", {1, 2, 2, 2}, 1, -1},
          {"all equal", {7, 7, 7}, 0, -1},
          {"zeros of both signs are equal", {-1, -0.0f, 0.0f}, 1, -1},
          {"zeros the other way round", {-1, 0.0f, -0.0f}, 1, -1},
          {"negative", {-3, -1, -2}, 1, -1},
          {"infinite", {1, inf, inf}, 1, 1},
          {"nothing but minus infinity", {-inf, -inf}, 0, 0},
          {"minus infinity and less than nothing", {-inf, -1e30f}, 1, 0},
          {"NaN first", {nan, 1, 2}, 2, 0},
          {"NaN between", {1, 3, nan, 2, nan}, 1, 2},
          {"nothing but NaN", {nan, nan}, 0, 0},
          {"NaN and minus infinity", {nan, -inf}, 1, 0},
          {"minus infinity last", {2, 1, -inf}, 0, 2},
          {"the largest finite value", {1, 3e38f, -3e38f}, 1, -1}};
}

inline Tensor argmax_row(const ArgmaxCase& c, DType dtype) {
  const Tensor x = Tensor::empty({1, static_cast<std::int64_t>(c.row.size())}, dtype);
  for (std::size_t i = 0; i < c.row.size(); ++i) set_element(x, static_cast<std::int64_t>(i), c.row[i]);
  return x;
}

}  // namespace quench::testing
