#pragma once
// Optimizer state that waits in host memory while gradients are computed.
//
// Nobody reads moments and master weights between two updates. A part of them leaves during the first forward pass of a
// step, layer by layer as the activations need the room, and comes back during the last backward pass as they give it
// up. Where a step has several micro-batches, half of that part has the first backward pass to leave.
//
// Copies run on streams of their own; the device computes on and waits only where the link is slower. Between steps all
// of the state is on the device, so that checkpoints and the choice of what to offload know nothing of it.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor/offloaded_tensor.h"
#include "nn/forward_context.h"
#include "nn/optim/parameter_state.h"

namespace quench::nn {

class StateOffloader {
 public:
  // Of `state`, in this order, as many tensors as hold `ratio` (0 to 1) of its bytes. Keeps the pointers; a tensor that
  // is away is undefined there. `layers` of the model give the moments at which tensors go and return.
  StateOffloader(std::span<const ParameterState> state, double ratio, Device device, std::int64_t layers);
  // Brings back what is away.
  ~StateOffloader();
  StateOffloader(const StateOffloader&) = delete;
  StateOffloader& operator=(const StateOffloader&) = delete;

  // One step's forward and backward passes. All state is on the device before and after, also in an exception.
  class Step {
   public:
    // `offloader` may be nullptr: nothing happens then.
    explicit Step(StateOffloader* offloader);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
    // To be called around the layers of a micro-batch, of which `first` and `last` of the step; nullptr: nothing to do.
    // Good until the next call.
    [[nodiscard]] const UnitHooks* hooks(bool first, bool last);
    void end();

   private:
    StateOffloader* offloader_;
  };

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }  // of what goes

 private:
  struct Entry {
    Tensor* place;
    std::int64_t end;  // bytes of the entries up to this one
    std::shared_ptr<OffloadedTensor> away = {};
    Tensor host = {};  // kept: the next copy out may use it, since copies are ordered on the device
  };

  void send_all();
  // Gives back the device memory of the first slot/slots of the bytes.
  void drop(std::int64_t slot, std::int64_t slots);
  // Begins to bring back the first slot/slots of the bytes.
  void fetch(std::int64_t slot, std::int64_t slots);
  // Puts all entries in their places, for work queued from now on.
  void restore();
  void restore_quietly() noexcept;

  Device device_;
  std::int64_t layers_;
  std::int64_t bytes_ = 0;
  std::vector<Entry> entries_;
  std::size_t dropped_ = 0;  // entries whose device memory is given back
  std::size_t fetched_ = 0;  // entries on their way back
  bool sent_ = false;
  UnitHooks hooks_;
  Stream out_, in_;
};

}  // namespace quench::nn
