#include "distributed/gloo/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace quench::distributed {
namespace {

constexpr std::int64_t kBlock = 1024;  // fits in L1 across all sources

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>)  // wraps around
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    else
      return a + b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return b > a || b != b ? b : a;  // propagates NaN
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};

template <class T, class Op>
void reduce_values(std::span<const void* const> sources, void* output, std::int64_t count, Op op) {
  using Accumulator = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;
  std::array<Accumulator, kBlock> sum;
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const auto n = static_cast<std::size_t>(std::min(kBlock, count - begin));
    const T* first = static_cast<const T*>(sources.front()) + begin;
    for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<Accumulator>(first[i]);
    for (const void* source : sources.subspan(1)) {
      const T* values = static_cast<const T*>(source) + begin;
      for (std::size_t i = 0; i < n; ++i) sum[i] = op(sum[i], static_cast<Accumulator>(values[i]));
    }
    T* result = static_cast<T*>(output) + begin;
    for (std::size_t i = 0; i < n; ++i) result[i] = static_cast<T>(sum[i]);
  }
}

}  // namespace

void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* output, std::int64_t count) {
  dispatch<float, double, bfloat16, std::int32_t, std::int64_t>(dtype, "reduce", [&]<class T>() {
    switch (op) {
      case ReduceOp::sum: return reduce_values<T>(sources, output, count, Sum{});
      case ReduceOp::max: return reduce_values<T>(sources, output, count, Max{});
      case ReduceOp::min: return reduce_values<T>(sources, output, count, Min{});
    }
  });
}

}  // namespace quench::distributed
