#pragma once
// Content of a checkpoint: named tensors in global coordinates, counters, settings.

#include <cstdint>
#include <string>
#include <utility>

#include "core/json/json.h"
#include "core/tensor/tensor.h"

namespace quench {

// Rows [start, start + length). A scalar counts as one row.
struct ShardSlice {
  std::int64_t start = 0;
  std::int64_t length = 0;
  friend bool operator==(const ShardSlice&, const ShardSlice&) = default;
};

// One rank's shard; a rank may have several of a tensor. The shards of all ranks tile the rows exactly, or rows and
// columns; a replicated tensor comes from one rank. Empty shards of rows and missing ones are allowed.
struct CheckpointTensor {
  std::string name;  // 1..512 bytes of UTF-8, no control characters; unique
  Shape global_shape;
  ShardSlice slice;
  // [slice.length, columns.length or global_shape[1], global_shape[2:]...] (rank 0: the scalar), contiguous, any device
  Tensor data;
  ShardSlice columns{};  // range of the second axis; length 0: all

  static CheckpointTensor whole(std::string name, const Tensor& data) {
    const std::int64_t rows = data.rank() == 0 ? 1 : data.size(0);
    return {std::move(name), data.shape(), {0, rows}, data, {}};
  }
};

// The four Json values are opaque (sampler, RNG, LR schedule, recipes) and round-trip, except that NaN and infinities
// become null.
struct CheckpointState {
  std::int64_t step = 0;         // optimizer steps completed
  std::int64_t tokens_seen = 0;  // over all ranks
  std::int64_t samples = 0;      // consumed over all ranks
  std::string tool_version;
  Json config = Json::object();
  Json rng = Json::object();
  Json data = Json::object();
  Json schedule = Json::object();
  Json extra = Json::object();
};

}  // namespace quench
