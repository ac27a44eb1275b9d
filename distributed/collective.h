#pragma once
// One collective operation, for engines, the collective log and messages.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench::distributed {

enum class ReduceOp : std::uint8_t { sum, max, min };

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  send,
  receive,
  barrier,
};
inline constexpr int kCollectiveKindCount = 8;

[[nodiscard]] std::string_view to_string(ReduceOp op) noexcept;
[[nodiscard]] std::string_view to_string(CollectiveKind kind) noexcept;

// "all_reduce #12 of 'norm' (sum, 4 f32)"
[[nodiscard]] std::string describe_collective(CollectiveKind kind, ReduceOp op, std::uint64_t sequence,
                                              std::string_view label, std::int64_t elements, DType dtype);

struct Collective {
  CollectiveKind kind = CollectiveKind::barrier;
  ReduceOp op = ReduceOp::sum;
  int peer = 0;     // root of a broadcast, peer of send and recv
  Tensor input{};   // contiguous; equal to `output` for in-place operations; undefined for barrier and recv
  Tensor output{};  // contiguous; undefined for barrier and send
  std::vector<std::int64_t> send_counts;     // all_to_all: elements per destination rank
  std::vector<std::int64_t> receive_counts;  // all_to_all: elements per source rank
  std::string label;
  std::uint64_t sequence = 0;

  [[nodiscard]] const Tensor& payload() const noexcept { return input.defined() ? input : output; }
  [[nodiscard]] std::string describe() const;
};

// Minimum bytes sent by `rank` of `size` ranks (ring algorithms).
[[nodiscard]] std::int64_t wire_bytes(const Collective& collective, int rank, int size);

}  // namespace quench::distributed
