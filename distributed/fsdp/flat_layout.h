#pragma once
// Parameters of an FSDP unit and their flat buffers.
//
// Large parameters are gathered individually, in place; small ones of equal element width share a flat buffer and one
// collective (packed 4-bit values count as bytes). Expert-parallel parameters use their own group and are gathered
// individually.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/exposed_comm_timer.h"
#include "distributed/fsdp/buffer_pool.h"
#include "distributed/fsdp/weight_amax.h"
#include "distributed/process_group.h"
#include "nn/modules/linear.h"

namespace quench::distributed {

// Small parameters: latency exceeds transfer time.
inline constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
// Offsets: multiples of 128 bytes of the widest type.
[[nodiscard]] constexpr std::int64_t place_elements(std::int64_t elements) {
  constexpr std::int64_t kPlace = 32;
  return (elements + kPlace - 1) / kPlace * kPlace;
}

// Shared by the units of a model.
struct FsdpContext {
  std::shared_ptr<ProcessGroup> shard;         // all parameters except experts
  std::shared_ptr<ProcessGroup> expert_shard;  // expert-parallel parameters
  Device device;
  DType reduce_dtype;        // gradients in reduction
  bool keeps_whole = false;  // weights stay gathered from forward to backward pass
  BufferPool weights;
  BufferPool gradients;
  Stream stream;
  Event reached;  // recorded on the current stream, awaited by the next collectives
  std::shared_ptr<ExposedCommTimer> clock;
  std::shared_ptr<WeightAmax> weight_amax;

  [[nodiscard]] std::int64_t processes() const { return shard->size(); }
  // Runs `work`, which queues collectives, as one batch per group with parameters.
  void for_each_group(const std::function<void(ProcessGroup&)>& work) const;
  void follow() const;
};

struct FsdpParameter {
  nn::Parameter* parameter;
  ProcessGroup* group;                     // processes that hold its shards
  const nn::Linear* layer;                 // may read quantized values; null: gathered unquantized
  Shape shape;                             // full, within the group
  Shape padded_shape;                      // padded to equal chunks of rows
  std::optional<std::size_t> buffer = {};  // index in FlatLayout::small; absent: gathered individually
  std::int64_t place = 0;                  // offset of its chunk, in elements

  [[nodiscard]] bool small() const noexcept { return buffer.has_value(); }
  [[nodiscard]] std::int64_t chunk_elements() const { return parameter->padded.numel(); }
};

struct FlatLayout {
  // Moves the shards of small parameters into `small`. `layers`: may be gathered as quantized values.
  FlatLayout(const std::vector<nn::Parameter*>& unit_parameters, const std::vector<const nn::Linear*>& layers,
             const FsdpContext& shared);

  // [processes, elements]: one parameter's chunks in a gathered flat buffer.
  [[nodiscard]] Tensor chunks(const Tensor& sent, const FsdpParameter& parameter, std::int64_t processes) const;

  std::vector<FsdpParameter> parameters;
  std::vector<Tensor> small;  // one flat buffer of shards per element width
};

}  // namespace quench::distributed
