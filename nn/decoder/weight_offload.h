#pragma once
// Frozen weights in pinned host memory, for a model without backward passes. Decoder layers are prefetched one ahead on
// a copy stream, so that at most two are on the device; other weights are copied when acquired and freed when released.
// Values are the same bits as resident ones.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor/offloaded_tensor.h"
#include "nn/decoder/causal_lm.h"

namespace quench::nn {

class WeightOffloader {
 public:
  // Adds unit hooks to the model, which must outlive this object. For a sharded model: construct before its
  // ShardedModel, whose hooks have to follow.
  explicit WeightOffloader(CausalLm& model);
  ~WeightOffloader();
  WeightOffloader(const WeightOffloader&) = delete;
  WeightOffloader& operator=(const WeightOffloader&) = delete;

  // Moves the values of a filled, frozen parameter to host memory. `layer`: its decoder layer; -1: none. Shards of an
  // all-gather (Parameter::padded): of layers only, and not those that share a flat buffer; call after construction of
  // the ShardedModel. They are on the device two layers ahead, for the all-gather one ahead.
  void offload(Parameter& parameter, std::int64_t layer);

  [[nodiscard]] std::int64_t host_bytes() const noexcept { return host_bytes_; }
  // Copied in a forward pass with its head while no layer computes: weights outside the layers, a tied table twice.
  [[nodiscard]] std::int64_t exposed_bytes() const noexcept { return exposed_bytes_; }
  [[nodiscard]] std::int64_t layer_bytes() const noexcept { return layer_bytes_; }
  // Maximum on the device at a time.
  [[nodiscard]] std::int64_t device_bytes() const;

 private:
  struct Entry {
    std::shared_ptr<OffloadedTensor> tensor;
    Parameter* shard;  // its `padded` is set while on the device; null: a whole weight
    std::int64_t bytes;
  };

  void prefetch(std::int64_t layer, bool shards);
  void before_forward(std::int64_t layer);
  void after_forward(std::int64_t layer);
  [[nodiscard]] bool has_layer(std::int64_t layer) const noexcept {
    return layer < static_cast<std::int64_t>(layers_.size());
  }

  CausalLm& model_;
  Device device_;
  Stream link_;
  UnitHooks hooks_;
  std::vector<std::vector<Entry>> layers_;
  std::int64_t host_bytes_ = 0, layer_bytes_ = 0, exposed_bytes_ = 0;
  std::int64_t largest_other_ = 0;  // weight outside the layers
  const Parameter* tied_table_ = nullptr;
};

}  // namespace quench::nn
