#pragma once
// Tensors of a golden file, compared byte by byte.

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/safetensors/safetensors.h"
#include "core/tensor/tensor.h"
#include "tests/testing.h"

namespace quench::testing {

class GoldenFile {
 public:
  explicit GoldenFile(const std::string& name) : reader_(golden_dir() / name) {}

  [[nodiscard]] Tensor tensor(const std::string& name) const {
    const SafetensorsEntry& entry = reader_.at(name);
    QUENCH_CHECK(entry.dtype.has_value(), "{} has dtype {}", name, entry.dtype_name);
    Tensor result = Tensor::empty(entry.shape, *entry.dtype);
    reader_.read(entry, {static_cast<std::byte*>(result.raw_data()), result.nbytes()});
    return result;
  }

 private:
  SafetensorsReader reader_;
};

// The same shape up to packing and dtype names, and the same bytes; reports the first few that differ.
inline ::testing::AssertionResult same_bytes(const Tensor& actual, const Tensor& expected) {
  if (actual.nbytes() != expected.nbytes())
    return ::testing::AssertionFailure() << actual.describe() << " against " << expected.describe();
  const auto* a = static_cast<const unsigned char*>(actual.raw_data());
  const auto* e = static_cast<const unsigned char*>(expected.raw_data());
  std::size_t differ = 0;
  auto failure = ::testing::AssertionFailure() << expected.describe() << ":";
  for (std::size_t i = 0; i < expected.nbytes(); ++i)
    if (a[i] != e[i] && ++differ <= 5)
      failure << " byte " << i << " is " << static_cast<int>(a[i]) << ", expected " << static_cast<int>(e[i]) << ";";
  if (differ == 0) return ::testing::AssertionSuccess();
  return failure << " " << differ << " bytes differ";
}

}  // namespace quench::testing
