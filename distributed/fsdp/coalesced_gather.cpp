#include "distributed/fsdp/coalesced_gather.h"

#include <algorithm>
#include <utility>

#include "core/ops/elementwise.h"

namespace quench::distributed {

std::size_t CoalescedGather::add(const Tensor& target, std::int64_t processes) {
  // Offsets: multiples of 128 bytes.
  const std::int64_t step = 128 / byte_size(dtype_), part = target.numel() / processes;
  pieces_.push_back({target.view({processes, part}), elements_});
  elements_ += (part + step - 1) / step * step;
  return pieces_.size() - 1;
}

void CoalescedGather::add_in_place(const Tensor& target, std::int64_t place, const Tensor& sent,
                                   std::int64_t processes) {
  pieces_.push_back({target.view({processes, target.numel() / processes}), place});
  elements_ = sent.numel();
  sent_ = sent;
}

Tensor CoalescedGather::own(std::size_t piece, int rank) const {
  return buffer_.narrow(0, rank * elements_ + pieces_[piece].place, pieces_[piece].target.size(1));
}

Work CoalescedGather::gather(ProcessGroup& group, std::string_view label) const {
  return group.all_gather(sent_.defined() ? sent_ : buffer_.narrow(0, group.rank() * elements_, elements_), buffer_,
                          label);
}

Tensor CoalescedGather::unpack(std::int64_t processes) {
  const Tensor parts = buffer_.view({processes, elements_});
  for (const Piece& piece : pieces_) copy_rows({parts.narrow(1, piece.place, piece.target.size(1)), piece.target});
  pieces_.clear();
  elements_ = 0;
  sent_ = Tensor();
  return std::exchange(buffer_, Tensor());
}

}  // namespace quench::distributed
