#pragma once
// Parameters of one FSDP unit and their layout in flat buffers.
//
// Large parameters are gathered individually, in place. Small ones of equal element width share a flat buffer and are
// gathered in one collective; packed codes of four bits count as bytes. Experts of expert parallelism have a group of
// their own, in which each parameter is a large one.

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

// A chunk of fewer bytes costs more to start than to send.
inline constexpr std::size_t kSmallBytes = std::size_t{1} << 20;
// Places in a common buffer are multiples of 128 bytes of the widest type.
[[nodiscard]] constexpr std::int64_t place_elements(std::int64_t elements) {
  constexpr std::int64_t kPlace = 32;
  return (elements + kPlace - 1) / kPlace * kPlace;
}

// What the units of a model share.
struct FsdpContext {
  std::shared_ptr<ProcessGroup> shard;         // of all parameters except those of experts under expert parallelism
  std::shared_ptr<ProcessGroup> expert_shard;  // of those
  Device device;
  DType reduce_dtype;        // of gradients on their way
  bool keeps_whole = false;  // weights stay gathered between the forward and the backward pass
  BufferPool weights;
  BufferPool gradients;
  Stream stream;  // where collectives are queued
  Event reached;  // on the current stream: what they follow
  std::shared_ptr<ExposedCommTimer> clock;
  std::shared_ptr<WeightAmax> weight_amax;

  [[nodiscard]] std::int64_t processes() const { return shard->size(); }
  // Runs `work`, which queues collectives, for each group that holds parameters: what a group starts, starts together.
  void for_each_group(const std::function<void(ProcessGroup&)>& work) const;
  // Collectives queued from now on follow what is queued on the current stream.
  void follow() const;
};

struct FsdpParameter {
  nn::Parameter* parameter;
  ProcessGroup* group;      // that holds it together
  const nn::Linear* layer;  // whose weight it is and who may read it as codes; null: it travels as values
  Shape shape;              // of the whole: of what the group holds
  Shape padded_shape;       // the same in rows of equal chunks
  std::optional<std::size_t> buffer = {};  // of FlatLayout::small, with its chunk; absent: travels alone
  std::int64_t place = 0;                  // of its chunk there, in elements of the buffer

  [[nodiscard]] bool small() const noexcept { return buffer.has_value(); }
  [[nodiscard]] std::int64_t chunk_elements() const { return parameter->padded.numel(); }
};

struct FlatLayout {
  // Moves the shards of small parameters into `small`. `layers` are those whose weights may travel as codes.
  FlatLayout(const std::vector<nn::Parameter*>& unit_parameters, const std::vector<const nn::Linear*>& layers,
             const FsdpContext& shared);

  // The chunks of all processes, [processes, elements], of what they sent together in places like those of a buffer.
  [[nodiscard]] Tensor chunks(const Tensor& sent, const FsdpParameter& parameter, std::int64_t processes) const;

  std::vector<FsdpParameter> parameters;
  std::vector<Tensor> small;  // chunks of small parameters, in the dtype of one of them; a buffer for each width
};

}  // namespace quench::distributed
