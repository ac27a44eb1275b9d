#pragma once
// Optimizer state that stays in pinned host memory, also during the update: buckets of parameters are copied to the
// device one ahead, updated and copied back, on separate streams. State of two buckets at a time is on the device.
// Updates have the same bits as resident ones.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/tensor/offloaded_tensor.h"
#include "nn/optim/optimizer.h"

namespace quench::nn {

class StateStream {
 public:
  // Takes the first tensors of the optimizer's state up to `ratio` (0 to 1) of its bytes, and moves others that are in
  // host memory (OptimizerOptions::host_state) to the device. Between updates the optimizer's state() holds the host
  // tensors. Keeps pointers into the optimizer.
  StateStream(Optimizer& optimizer, double ratio, Device device);
  ~StateStream();
  StateStream(const StateStream&) = delete;
  StateStream& operator=(const StateStream&) = delete;

  // Calls `step` for consecutive ranges that cover `part`, equal on all ranks, each with its state on the device.
  void update(ParameterRange part, const std::function<void(ParameterRange)>& step);
  // Calls `step` once for `part`; the state of `next` is copied to the device meanwhile. The last part's copies back to
  // the host are in flight afterwards, until the next update or end_update().
  void update_one(ParameterRange part, ParameterRange next, const std::function<void(ParameterRange)>& step);
  void end_update() { drop_sent(); }
  // Blocks the host until host tensors hold the last update.
  void finish_copies();

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

 private:
  struct Entry {
    Tensor* place;
    std::shared_ptr<OffloadedTensor> tensor;
  };
  struct ParameterEntries {
    std::int64_t elements;  // elements of the largest shard: equal on all ranks
    std::vector<Entry> entries;
  };

  [[nodiscard]] std::size_t bucket_end(std::size_t begin, std::size_t limit) const;
  template <class Work>
  void for_each(ParameterRange part, const Work& work);
  void drop_sent();

  Device device_;
  std::vector<ParameterEntries> parameters_;  // by index in the optimizer
  std::int64_t bytes_ = 0;
  ParameterRange sent_;  // its device copies are being copied back
  Stream out_, in_;
};

}  // namespace quench::nn
