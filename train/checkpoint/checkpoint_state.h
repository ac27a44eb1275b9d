#pragma once
// What a training checkpoint holds: named tensors in global coordinates, and the counters and settings of the run.

#include <cstdint>
#include <string>
#include <utility>

#include "core/json/json.h"
#include "core/tensor/tensor.h"

namespace quench {

// Rows [start, start + length) of a tensor along axis 0. A scalar counts as one row.
struct ShardSlice {
  std::int64_t start = 0;
  std::int64_t length = 0;
  friend bool operator==(const ShardSlice&, const ShardSlice&) = default;
};

// One process's part of a named tensor. The parts of all processes must tile the tensor's rows exactly; of replicated
// tensors one process gives the whole and the others give nothing. A process may give an empty part or none.
struct CheckpointTensor {
  std::string name;  // 1..512 bytes of UTF-8 without control characters; unique in the checkpoint
  Shape global_shape;
  ShardSlice slice;
  Tensor data;  // [slice.length, global_shape[1:]...] (the scalar itself for rank 0), contiguous, any device

  // The whole tensor, held by this process.
  static CheckpointTensor whole(std::string name, const Tensor& data) {
    const std::int64_t rows = data.rank() == 0 ? 1 : data.size(0);
    return {std::move(name), data.shape(), {0, rows}, data};
  }
};

// Everything besides tensors that resuming needs. The four Json values belong to their owners (sampler, random
// streams, learning-rate schedule, recipes) and come back unchanged, except that NaN and infinities become null.
struct CheckpointState {
  std::int64_t step = 0;         // optimizer steps done
  std::int64_t tokens_seen = 0;  // over all ranks
  std::int64_t samples = 0;      // position in the sample order: samples consumed over all ranks
  std::string tool_version;      // of the program that saved
  Json config = Json::object();  // the resolved run configuration
  Json rng = Json::object();
  Json data = Json::object();
  Json schedule = Json::object();
  Json extra = Json::object();
};

}  // namespace quench
