#pragma once
// Optimizer state that waits in host memory while gradients are computed.
//
// Nobody reads moments and master weights between two updates. A part of them leaves during the first forward pass of a
// step, layer by layer as the activations need the room, and comes back during the last backward pass as they give it
// up. Where a step has several micro-batches, half of that part has the first backward pass to leave.
//
// When the last gradient is made, activations have nothing more to give up. A share of what travels, the late state,
// comes back only during the update: the parameters it does not belong to are updated first, in parts, and the
// gradients of each part leave it the room; its own parameters are updated as it arrives.
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
  // Of `state`, in this order, as many tensors as hold `ratio` (0 to 1) of its bytes. Late are, of these, the tensors
  // of the last parameters: of as few as hold `late_ratio` of the bytes. Keeps the pointers; a tensor that is away is
  // undefined there. `layers` of the model give the moments at which tensors go and return.
  StateOffloader(std::span<const ParameterState> state, double ratio, double late_ratio, Device device,
                 std::int64_t layers);
  // Brings back what is away.
  ~StateOffloader();
  StateOffloader(const StateOffloader&) = delete;
  StateOffloader& operator=(const StateOffloader&) = delete;

  // One step's forward and backward passes. All state is on the device when it begins, all but the late one after
  // end(), all where it ends without, in an exception.
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

  // An update after a step. Calls `apply` for parts of the parameters, each parameter once; it queues their update and
  // gives their gradients back. All state is on the device in the end, also in an exception.
  void update(const std::function<void(ParameterRange part)>& apply);
  // The same where there is no update.
  void bring_back() { restore(entries_.size()); }

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }  // of what goes
  [[nodiscard]] std::int64_t late_bytes() const noexcept { return bytes_ - prompt_bytes_; }

 private:
  struct Entry {
    Tensor* place;
    std::size_t parameter;
    std::int64_t size;
    std::int64_t end;  // bytes of the entries up to this one
    std::shared_ptr<OffloadedTensor> away = {};
    // Kept between steps: when the host begins the next one, late state may still be on its way back.
    Tensor host = {};
  };

  void send_all();
  // Gives back the device memory of the first slot/slots of the bytes.
  void drop(std::int64_t slot, std::int64_t slots);
  // Begins to bring back the first slot/slots of the bytes that are not late.
  void fetch(std::int64_t slot, std::int64_t slots);
  // The same with what fits in `room` bytes, in order. Returns what is left of them.
  std::int64_t fetch_into(std::int64_t room);
  // Puts the entries before `end` in their places, for work queued from now on.
  void restore(std::size_t end);
  void restore_quietly() noexcept;

  Device device_;
  std::int64_t layers_;
  std::int64_t bytes_ = 0;
  std::int64_t prompt_bytes_ = 0;  // of the entries that are not late
  std::vector<Entry> entries_;     // the late ones at the end
  std::size_t first_late_ = 0;
  ParameterRange late_;  // parameters with late entries
  std::vector<std::int64_t> gradient_bytes_;
  std::size_t dropped_ = 0;   // entries whose device memory is given back
  std::size_t fetched_ = 0;   // entries on their way back
  std::size_t restored_ = 0;  // entries that are back
  bool sent_ = false;
  UnitHooks hooks_;
  Stream out_, in_;
};

}  // namespace quench::nn
