#pragma once
// Bit-for-bit comparison of the tensors of checkpoints.

#include <gtest/gtest.h>

#include "train/checkpoint/checkpoint_reader.h"

namespace quench::testing {

inline std::vector<std::byte> tensor_bytes(CheckpointReader& reader, const TensorRecord& record) {
  const Tensor tensor = Tensor::empty(record.shape, record.dtype);
  reader.read(record.name, tensor);
  const auto* data = static_cast<const std::byte*>(tensor.raw_data());
  return {data, data + tensor.nbytes()};
}

// Every tensor of two checkpoints, bit for bit.
inline void expect_same_tensors(const std::filesystem::path& a, const std::filesystem::path& b) {
  CheckpointReader x(a), y(b);
  ASSERT_EQ(x.manifest().tensors.size(), y.manifest().tensors.size());
  for (const TensorRecord& record : x.manifest().tensors)
    EXPECT_EQ(tensor_bytes(x, record), tensor_bytes(y, y.at(record.name))) << record.name;
}

}  // namespace quench::testing
