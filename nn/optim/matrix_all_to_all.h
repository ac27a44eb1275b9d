#pragma once
// How an optimizer whose update needs whole matrices brings them together, where processes hold them by rows.

#include <cstdint>
#include <span>

#include "core/tensor/tensor.h"
#include "nn/parameter.h"

namespace quench::nn {

class MatrixAllToAll {
 public:
  virtual ~MatrixAllToAll() = default;
  // How many processes hold the rows of every parameter, and which of them this is.
  [[nodiscard]] virtual Sharding sharding() const = 0;
  // Sends `send_counts[j]` elements of `input`, one part behind the other, to process j, and puts the
  // `receive_counts[j]` elements from it into `output`, in order of the processes. Contiguous tensors of one dtype.
  // Collective; done for what is queued on the current stream from now on.
  virtual void exchange(const Tensor& input, const Tensor& output, std::span<const std::int64_t> send_counts,
                        std::span<const std::int64_t> receive_counts) = 0;
};

}  // namespace quench::nn
