#pragma once
// Coalesced all-gather: one collective for small pieces of several tensors.

#include <vector>

#include "distributed/fsdp/flat_layout.h"

namespace quench::distributed {

class CoalescedGather {
 public:
  CoalescedGather() = default;
  explicit CoalescedGather(DType dtype) : dtype_(dtype) {}

  // Adds an equal chunk of `target` per process; contiguous, of the gather's dtype. Returns its index.
  std::size_t add(const Tensor& target, std::int64_t processes);
  // Adds a piece at offset `place` of `sent`, this process's contiguous send buffer.
  void add_in_place(const Tensor& target, std::int64_t place, const Tensor& sent, std::int64_t processes);
  [[nodiscard]] bool empty() const noexcept { return pieces_.empty(); }

  // Sets the gather buffer; call after the last piece.
  void pack(Tensor buffer) { buffer_ = std::move(buffer); }
  [[nodiscard]] std::int64_t elements() const noexcept { return elements_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  // Send slot of a piece: contiguous, 1-D.
  [[nodiscard]] Tensor own(std::size_t piece, int rank) const;
  [[nodiscard]] Work gather(ProcessGroup& group, std::string_view label) const;
  // Copies the pieces to their targets and clears the list. Returns the buffer.
  Tensor unpack(std::int64_t processes);

 private:
  struct Piece {
    Tensor target;  // [processes, elements]
    std::int64_t place;
  };

  DType dtype_ = DType::u8;
  std::int64_t elements_ = 0;
  std::vector<Piece> pieces_;
  Tensor buffer_, sent_;
};

}  // namespace quench::distributed
