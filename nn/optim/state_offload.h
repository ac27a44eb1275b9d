#pragma once
// Optimizer state offload to host memory. A part of moments and master weights is copied out layer by layer in the
// first forward pass of a step (half of it in the first backward pass, if there are several micro-batches), and copied
// back in the last backward pass, on separate streams. Between steps all state is on the device.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor/offloaded_tensor.h"
#include "nn/modules/forward_context.h"
#include "nn/optim/parameter_state.h"

namespace quench::nn {

// Number of tensors, from the first, up to `ratio` (0 to 1) of the bytes; the last one starts within them. Empty
// tensors do not count.
[[nodiscard]] std::size_t count_within(std::span<const ParameterState> state, double ratio);

class StateOffloader {
 public:
  // Offloads the first count_within() tensors of `state`. Keeps the pointers; an offloaded tensor
  // is undefined meanwhile.
  StateOffloader(std::span<const ParameterState> state, double ratio, Device device, std::int64_t layers);
  ~StateOffloader();
  StateOffloader(const StateOffloader&) = delete;
  StateOffloader& operator=(const StateOffloader&) = delete;

  // All state is on the device before and after a step, also on exceptions.
  class Step {
   public:
    // nullptr: no-op.
    explicit Step(StateOffloader* offloader);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    // Hooks of a micro-batch; nullptr: none. Valid until the next call.
    [[nodiscard]] const UnitHooks* hooks(bool first, bool last);
    void end();

   private:
    StateOffloader* offloader_;
  };

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }  // offloaded bytes

 private:
  struct Entry {
    Tensor* place;
    std::int64_t end;  // cumulative bytes including this entry
    std::shared_ptr<OffloadedTensor> away = {};
    Tensor host = {};  // reused by the next copy out
  };

  void send_all();
  // First slot/slots of the bytes.
  void drop(std::int64_t slot, std::int64_t slots);
  // First slot/slots of the bytes.
  void fetch(std::int64_t slot, std::int64_t slots);
  void restore();
  void restore_quietly() noexcept;

  Device device_;
  std::int64_t layers_;
  std::int64_t bytes_ = 0;
  std::vector<Entry> entries_;
  std::size_t dropped_ = 0;
  std::size_t fetched_ = 0;  // entries being copied back
  bool sent_ = false;
  UnitHooks hooks_;
  Stream out_, in_;
};

}  // namespace quench::nn
