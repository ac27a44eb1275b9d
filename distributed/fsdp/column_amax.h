#pragma once
// Column amax of row-sharded weights, for the per-column scales of dgrad GEMMs; fused into the cast for the forward
// GEMM.

#include <vector>

#include "distributed/fsdp/flat_layout.h"

namespace quench::distributed {

class ColumnAmax {
 public:
  ColumnAmax(const FlatLayout& layout, std::shared_ptr<FsdpContext> shared);

  // True if the present version's amax is computed or in reduction.
  [[nodiscard]] bool current(std::size_t parameter) const;
  // f32 [1, columns] of zeros, for the local rows' amax; share() follows.
  [[nodiscard]] Tensor begin(std::size_t parameter);
  // begin() and an amax pass over the local rows.
  void find(std::size_t parameter);
  // Starts the all-reduce of all begun columns. Collective.
  void share();
  // f32 [1, columns]: encode scales of the full parameter. Requires current() and share().
  [[nodiscard]] Tensor scale(std::size_t parameter, const autograd::WeightFormat& form);

 private:
  struct Entry {
    std::int64_t place = -1;  // offset in elements; -1: not a matrix
    bool found = false;       // version is valid
    std::uint64_t version = 0;
    Tensor scale;
    autograd::WeightFormat form;  // format of the scale
  };
  [[nodiscard]] Tensor place(std::size_t parameter) const;

  const FlatLayout& layout_;
  std::shared_ptr<FsdpContext> shared_;
  std::vector<Entry> entries_;
  std::int64_t elements_ = 0;
  Tensor amax_;  // f32, concatenated
  bool begun_ = false;
  std::vector<Work> sharing_;
};

}  // namespace quench::distributed
