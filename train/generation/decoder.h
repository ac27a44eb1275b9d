#pragma once
// Passes of a model over one sequence that grows, with a key-value cache.
//
// On a GPU the pass of a single token is captured once and launched for every further token: its some hundred kernels
// take as long as it takes to queue them. Token and position are read from the device.

#include <memory>
#include <span>

#include "core/memory/device_graph.h"
#include "nn/causal_lm.h"

namespace quench {

class Decoder {
 public:
  // Room for `capacity` tokens. The model outlives the decoder, and its weights stay where they are.
  Decoder(const nn::CausalLm& model, std::int64_t capacity);

  // Logits [1,V] f32, on the model's device, of the last of `ids` (i32 [N]) behind the tokens already there. Queued: on
  // a GPU the host goes on. Valid until the next call.
  [[nodiscard]] Tensor logits(const Tensor& ids);
  // The same for ids on the host.
  [[nodiscard]] Tensor logits(std::span<const std::int32_t> ids);

  // Tokens there, and the room for all.
  [[nodiscard]] std::int64_t length() const noexcept { return cache_.length(); }
  [[nodiscard]] std::int64_t capacity() const noexcept { return cache_.capacity(); }
  // Forgets all but the first `length` of them.
  void rewind(std::int64_t length);

 private:
  [[nodiscard]] Tensor pass(const Tensor& ids, nn::ForwardContext context);
  // Whether the pass of one token behind the ones there is captured, or can be now.
  [[nodiscard]] bool captured();
  void capture(std::int64_t bound);

  const nn::CausalLm& model_;
  nn::KvCache cache_;
  Tensor positions_;  // i32 [capacity], 0, 1, 2, ...

  // Of the captured pass.
  Tensor token_, position_;  // i32 [1]
  Tensor logits_;
  std::int64_t bound_ = 0;  // keys it can see
  std::int64_t single_passes_ = 0;
  bool capturable_ = true;
  std::unique_ptr<DeviceGraph> work_;
};

}  // namespace quench
