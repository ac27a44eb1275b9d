#pragma once
// One collective operation as its group sees it: what engines run, what the log keeps, what messages name.

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
  int peer = 0;   // root of a broadcast, the other end of send and receive
  Tensor input;   // contiguous; for operations in place the same as `output`; undefined for barrier and receive
  Tensor output;  // contiguous; undefined for barrier and send
  std::vector<std::int64_t> send_counts;     // all_to_all: elements for each rank
  std::vector<std::int64_t> receive_counts;  // all_to_all: elements from each rank
  std::string label;                         // the name of a tensor, for messages
  std::uint64_t sequence = 0;                // of its group, from 1

  [[nodiscard]] const Tensor& payload() const noexcept { return input.defined() ? input : output; }
  [[nodiscard]] std::string describe() const;
};

// Bytes that rank `rank` of `size` ranks has to send at least (ring algorithms): what the interconnect carries.
[[nodiscard]] std::int64_t wire_bytes(const Collective& collective, int rank, int size);

}  // namespace quench::distributed
