#pragma once
// All-to-all of row-sharded matrices for Muon.

#include <cstdint>
#include <span>

#include "core/tensor/tensor.h"
#include "nn/modules/parameter.h"

namespace quench::nn {

class MatrixAllToAll {
 public:
  virtual ~MatrixAllToAll() = default;
  [[nodiscard]] virtual Sharding sharding() const = 0;
  // All-to-all: `send_counts[j]` elements of `input` to rank j, `receive_counts[j]` elements from it into `output`, in
  // rank order. Contiguous tensors of one dtype. Collective; ordered on the current stream.
  virtual void exchange(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                        std::span<const std::int64_t> receive_counts) = 0;
};

}  // namespace quench::nn
