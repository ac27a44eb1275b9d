#pragma once
// Random operands, wide copies and comparisons for the tests of ops.

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::testing {

inline void set_element(const Tensor& t, std::int64_t offset, double value) {
  dispatch<float, bfloat16, float16, double, std::int32_t>(t.dtype(), "set_element", [&]<class T>() {
    if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>)
      t.data<T>()[offset] = T(static_cast<float>(value));
    else
      t.data<T>()[offset] = static_cast<T>(value);
  });
}

inline double get_element(const Tensor& t, std::int64_t offset) {
  return dispatch<float, bfloat16, float16, double, std::int32_t>(
      t.dtype(), "get_element", [&]<class T>() { return static_cast<double>(t.data<T>()[offset]); });
}

// Offset of element number `index` in row-major order.
inline std::int64_t offset_of(const Tensor& t, std::int64_t index) {
  std::int64_t offset = 0;
  for (int axis = t.rank() - 1; axis >= 0; --axis) {
    offset += index % t.size(axis) * t.stride(axis);
    index /= t.size(axis);
  }
  return offset;
}

// Elements in row-major order.
inline std::vector<double> values(const Tensor& t) {
  std::vector<double> result(static_cast<std::size_t>(t.numel()));
  for (std::int64_t i = 0; i < t.numel(); ++i) result[static_cast<std::size_t>(i)] = get_element(t, offset_of(t, i));
  return result;
}

// The same in f32.
inline std::vector<float> floats(const Tensor& t) {
  const std::vector<double> wide = values(t);
  return {wide.begin(), wide.end()};
}

inline void fill(const Tensor& t, double value) {
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, offset_of(t, i), value);
}

class Generator {
 public:
  explicit Generator(std::uint32_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t bound) { return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(engine_); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 1; }

  void fill_normal(const Tensor& t, double scale = 1.0) {
    std::normal_distribution<double> normal(0.0, scale);
    for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, offset_of(t, i), normal(engine_));
  }
  Tensor normal(const Shape& shape, DType dtype, double scale = 1.0) {
    Tensor t = Tensor::empty(shape, dtype);
    fill_normal(t, scale);
    return t;
  }
  // The same in a view whose first element is not aligned and whose rows (axis 0) are `gap` elements further apart.
  Tensor normal_view(const Shape& shape, DType dtype, std::int64_t gap, double scale = 1.0) {
    Tensor t = empty_view(shape, dtype, gap);
    fill_normal(t, scale);
    return t;
  }
  static Tensor empty_view(const Shape& shape, DType dtype, std::int64_t gap) {
    Shape strides = shape.contiguous_strides();
    strides[0] += gap;
    return Tensor::zeros({shape[0] * strides[0] + 1}, dtype).strided(shape, strides, 1);
  }
  Tensor integers(std::int64_t n, std::int64_t bound) {
    Tensor t = Tensor::empty({n}, DType::i32);
    for (std::int64_t i = 0; i < n; ++i) t.data<std::int32_t>()[i] = static_cast<std::int32_t>(below(bound));
    return t;
  }

 private:
  std::mt19937 engine_;
};

// Where groups of rows end.
inline Tensor ends_of(const std::vector<std::int32_t>& ends) {
  return Tensor::from_values<std::int32_t>({static_cast<std::int64_t>(ends.size())}, ends);
}

// Largest relative error of one rounding to the dtype.
inline double rounding(DType dtype) {
  return dtype == DType::bf16 ? 0x1.0p-8 : dtype == DType::f16 ? 0x1.0p-11 : 0x1.0p-24;
}

// |actual - expected| <= relative |expected| + absolute for every element; NaN only where NaN is expected.
inline ::testing::AssertionResult close(const Tensor& actual, const std::vector<double>& expected, double relative,
                                        double absolute) {
  const std::vector<double> got = values(actual);
  if (got.size() != expected.size())
    return ::testing::AssertionFailure() << got.size() << " elements, expected " << expected.size();
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double e = expected[i], a = got[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    if (!(std::abs(a - e) <= relative * std::abs(e) + absolute))
      return ::testing::AssertionFailure()
             << "element " << i << " is " << a << ", expected " << e << " +- " << relative * std::abs(e) + absolute;
  }
  return ::testing::AssertionSuccess();
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.is_contiguous() && b.is_contiguous() &&
         std::memcmp(a.raw_data(), b.raw_data(), a.nbytes()) == 0;
}

// Sets the number of OpenMP threads while alive.
class ThreadCount {
 public:
  explicit ThreadCount(int n) : previous_(omp_get_max_threads()) { omp_set_num_threads(n); }
  ~ThreadCount() { omp_set_num_threads(previous_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int previous_;
};

// True if body() leaves the same bits in every tensor with one, two and three threads.
template <class Body>
bool independent_of_threads(const std::vector<Tensor>& outputs, const Body& body) {
  std::vector<Tensor> first;
  for (const int threads : {1, 2, 3}) {
    const ThreadCount count(threads);
    body();
    if (threads == 1) {
      for (const Tensor& t : outputs) first.push_back(t.clone());
      continue;
    }
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (!same_bits(outputs[i], first[i])) return false;
  }
  return true;
}

}  // namespace quench::testing
