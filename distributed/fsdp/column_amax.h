#pragma once
// The largest magnitudes of the columns of a unit's weights, of which every process holds some rows. A product over the
// rows scales by column; the pass that casts the rows for the forward product finds the maxima on its way.

#include <vector>

#include "distributed/fsdp/flat_layout.h"

namespace quench::distributed {

class ColumnAmax {
 public:
  ColumnAmax(const FlatLayout& layout, std::shared_ptr<FsdpContext> shared);

  // Whether the maxima of the parameter's present version are there, or on their way.
  [[nodiscard]] bool current(std::size_t parameter) const;
  // f32 [1, columns] of zeros, for those of this process's rows; share() follows.
  [[nodiscard]] Tensor begin(std::size_t parameter);
  // begin(), from a pass over the rows.
  void find(std::size_t parameter);
  // Starts the all-reduce of the recorded amax, ordered after the current stream. Collective.
  void share();
  // f32 [1, columns]: the encode scales of the whole parameter's columns, current() and shared.
  [[nodiscard]] Tensor scale(std::size_t parameter, const autograd::WeightFormat& form);

 private:
  struct Entry {
    std::int64_t place = -1;  // in elements; -1: no matrix
    bool found = false;       // of a version
    std::uint64_t version = 0;
    Tensor scale;
    autograd::WeightFormat form;  // of the scale
  };
  [[nodiscard]] Tensor place(std::size_t parameter) const;

  const FlatLayout& layout_;
  std::shared_ptr<FsdpContext> shared_;
  std::vector<Entry> entries_;
  std::int64_t elements_ = 0;
  Tensor amax_;  // f32, one place a matrix
  bool begun_ = false;
  std::vector<Work> sharing_;
};

}  // namespace quench::distributed
