#pragma once
// Parameters of one FSDP unit and their layout in flat buffers.
//
// Large parameters are gathered individually, in place. Small ones of equal element width share a flat buffer and one
// collective; packed 4-bit values count as bytes. Expert-parallel parameters use their own group and are always
// gathered individually.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/fsdp/buffer_pool.h"
#include "distributed/fsdp/exposed_comm_timer.h"
#include "distributed/fsdp/weight_amax.h"
#include "distributed/process_group.h"
#include "nn/linear.h"

namespace quench::distributed {

// Size limit of small parameters: below it, latency exceeds transfer time.
inline constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
// Offsets in a flat buffer: multiples of 128 bytes of the widest type.
[[nodiscard]] constexpr std::int64_t place_elements(std::int64_t elements) {
  constexpr std::int64_t kPlace = 32;
  return (elements + kPlace - 1) / kPlace * kPlace;
}

// State shared by the units of a model.
struct FsdpContext {
  std::shared_ptr<ProcessGroup> shard;         // all parameters except expert-parallel ones
  std::shared_ptr<ProcessGroup> expert_shard;  // expert-parallel parameters
  Device device;
  DType reduce_dtype;        // dtype of gradient reduction
  bool keeps_whole = false;  // weights stay gathered between forward and backward pass
  BufferPool weights;
  BufferPool gradients;
  Stream stream;
  Event reached;  // recorded on the current stream; dependency of the next collectives
  std::shared_ptr<ExposedCommTimer> clock;
  std::shared_ptr<WeightAmax> weight_amax;

  [[nodiscard]] std::int64_t processes() const { return shard->size(); }
  // Runs `work`, which queues collectives, once per group that holds parameters, as one batch per group.
  void for_each_group(const std::function<void(ProcessGroup&)>& work) const;
  // Orders later collectives after the work queued on the current stream.
  void follow() const;
};

struct FsdpParameter {
  nn::Parameter* parameter;
  ProcessGroup* group;      // group of its shards
  const nn::Linear* layer;  // layer of this weight, which may read quantized values; null: gathered unquantized
  Shape shape;              // full shape within the group
  Shape padded_shape;       // full shape padded to equal chunks of rows
  std::optional<std::size_t> buffer =
      {};                  // index of its flat buffer in FlatLayout::small; absent: gathered individually
  std::int64_t place = 0;  // offset of its chunk, in elements

  [[nodiscard]] bool small() const noexcept { return buffer.has_value(); }
  [[nodiscard]] std::int64_t chunk_elements() const { return parameter->padded.numel(); }
};

struct FlatLayout {
  // Moves the shards of small parameters into `small`. `layers`: layers whose weights may be gathered as quantized
  // values.
  FlatLayout(const std::vector<nn::Parameter*>& unit_parameters, const std::vector<const nn::Linear*>& layers,
             const FsdpContext& shared);

  // [processes, elements]: chunks of one parameter from a gathered buffer with the layout of a flat buffer.
  [[nodiscard]] Tensor chunks(const Tensor& sent, const FsdpParameter& parameter, std::int64_t processes) const;

  std::vector<FsdpParameter> parameters;
  std::vector<Tensor> small;  // shards of small parameters: one flat buffer per element width
};

}  // namespace quench::distributed
