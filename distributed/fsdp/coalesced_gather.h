#pragma once
// Coalesced all-gather: one collective for small pieces of several tensors.

#include <vector>

#include "distributed/fsdp/flat_layout.h"

namespace quench::distributed {

class CoalescedGather {
 public:
  CoalescedGather() = default;
  explicit CoalescedGather(DType dtype) : dtype_(dtype) {}

  // A piece of `target`, contiguous and of the gather's dtype: an equal part of it from each process. Returns the
  // piece's number.
  std::size_t add(const Tensor& target, std::int64_t processes);
  // A piece that lies at this place of `sent`, where this process has its parts of all pieces contiguous already.
  void add_in_place(const Tensor& target, std::int64_t place, const Tensor& sent, std::int64_t processes);
  [[nodiscard]] bool empty() const noexcept { return pieces_.empty(); }

  // After the last piece: memory for all processes' parts.
  void pack(Tensor buffer) { buffer_ = std::move(buffer); }
  [[nodiscard]] std::int64_t elements() const noexcept { return elements_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  // Where this process writes its part of a piece: contiguous, flat.
  [[nodiscard]] Tensor own(std::size_t piece, int rank) const;
  [[nodiscard]] Work gather(ProcessGroup& group, std::string_view label) const;
  // Puts the pieces in their targets, and lets go of everything. Returns the buffer.
  Tensor unpack(std::int64_t processes);

 private:
  struct Piece {
    Tensor target;  // [processes, elements]
    std::int64_t place;
  };

  DType dtype_ = DType::u8;
  std::int64_t elements_ = 0;  // of one process
  std::vector<Piece> pieces_;
  Tensor buffer_, sent_;
};

}  // namespace quench::distributed
