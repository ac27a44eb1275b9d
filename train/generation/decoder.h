#pragma once
// Incremental decoding of one sequence with a KV cache.
//
// On a GPU the single-token pass is captured in a CUDA graph, since launching its several hundred kernels would take as
// long as running them. Token and position are read from device memory.

#include <memory>
#include <span>

#include "core/memory/device_graph.h"
#include "nn/decoder/causal_lm.h"

namespace quench {

class Decoder {
 public:
  // KV cache of `capacity` tokens. The model must outlive the decoder, with weights at fixed addresses.
  Decoder(const nn::CausalLm& model, std::int64_t capacity);

  // Logits [1,V] f32, on the model's device, of the last of `ids` (i32 [N]), appended to the sequence. Asynchronous on
  // a GPU. Valid until the next call.
  [[nodiscard]] Tensor logits(const Tensor& ids);
  // The same for host ids.
  [[nodiscard]] Tensor logits(std::span<const std::int32_t> ids);

  // Cached tokens, and the capacity.
  [[nodiscard]] std::int64_t length() const noexcept { return cache_.length(); }
  [[nodiscard]] std::int64_t capacity() const noexcept { return cache_.capacity(); }
  // Truncates the cache to `length` tokens.
  void rewind(std::int64_t length);

 private:
  [[nodiscard]] Tensor pass(const Tensor& ids, nn::ForwardContext context);
  // True if the next single-token pass is or can be captured.
  [[nodiscard]] bool captured();
  void capture(std::int64_t bound);

  const nn::CausalLm& model_;
  nn::KvCache cache_;
  Tensor positions_;  // i32 [capacity], 0, 1, 2, ...
  Tensor ids_;        // i32 [capacity], of all tokens, where longer sequences change cached keys; else undefined
  std::int64_t keys_length_ = 0;  // length of the sequence for which the last pass computed keys, with ids_

  Tensor token_, position_;  // i32 [1]
  Tensor logits_;
  std::int64_t bound_ = 0;  // visible keys
  std::int64_t chunk_ = 0;  // smallest attention chunk of a layer; 0: none
  std::int64_t single_passes_ = 0;
  bool capturable_ = true;
  std::shared_ptr<const nn::LayerTables> tables_;  // read by work_, whatever later passes of the model need
  std::unique_ptr<DeviceGraph> work_;
};

}  // namespace quench
