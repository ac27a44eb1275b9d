#include "distributed/fsdp/flat_layout.h"

#include <algorithm>

namespace quench::distributed {

void FsdpContext::follow() const {
  Backend& owner = backend(device.type);
  owner.record(reached, current_stream(device));
  owner.wait(stream, reached);
}

void FsdpContext::for_each_group(const std::function<void(ProcessGroup&)>& work) const {
  const auto together = [&](ProcessGroup& group) {
    const CollectiveBatch batch(group);
    work(group);
  };
  together(*shard);
  if (expert_shard != shard) together(*expert_shard);
}

FlatLayout::FlatLayout(const std::vector<nn::Parameter*>& unit_parameters, const std::vector<const nn::Linear*>& layers,
                       const FsdpContext& shared) {
  struct Buffer {
    DType dtype;
    std::int64_t elements;
  };
  std::vector<Buffer> buffers;
  for (nn::Parameter* parameter : unit_parameters) {
    const auto layer =
        std::ranges::find_if(layers, [&](const nn::Linear* linear) { return &linear->weight() == parameter; });
    FsdpParameter& entry = parameters.emplace_back(
        FsdpParameter{.parameter = parameter,
                      .group = (parameter->sharding.parts > 1 ? shared.expert_shard : shared.shard).get(),
                      .layer = layer != layers.end() ? *layer : nullptr,
                      .shape = parameter->global_shape,
                      .padded_shape = parameter->global_shape});
    const Tensor& chunk = parameter->padded;
    entry.shape[0] = parameter->sharding.region(entry.shape[0]).rows;
    entry.padded_shape[0] = chunk.size(0) * entry.group->size();
    if (entry.group != shared.shard.get() || chunk.nbytes() >= kSmallBytes) continue;
    const DType dtype = bit_width(chunk.dtype()) < 8 ? DType::u8 : chunk.dtype();
    auto buffer = std::ranges::find(buffers, bit_width(dtype), [](const Buffer& b) { return bit_width(b.dtype); });
    if (buffer == buffers.end()) buffer = buffers.insert(buffer, {dtype, 0});
    entry.buffer = static_cast<std::size_t>(buffer - buffers.begin());
    entry.place = buffer->elements;
    buffer->elements += place_elements(chunk.reinterpret(dtype).numel());
  }
  const MemoryScope scope(MemoryCategory::parameters);
  for (const auto& [dtype, elements] : buffers) small.push_back(Tensor::zeros({elements}, dtype, shared.device));
  for (const FsdpParameter& entry : parameters) {
    if (!entry.small()) continue;
    nn::Parameter& parameter = *entry.parameter;
    const Tensor before = parameter.padded;
    const Shape shape = before.reinterpret(small[*entry.buffer].dtype()).shape();
    parameter.padded =
        small[*entry.buffer].narrow(0, entry.place, shape.numel()).view(shape).reinterpret(before.dtype());
    parameter.padded.copy_from(before);
    parameter.variable.set_value(parameter.padded.narrow(0, 0, parameter.shard.rows));
  }
}

Tensor FlatLayout::chunks(const Tensor& sent, const FsdpParameter& parameter, std::int64_t processes) const {
  return sent.view({processes, small[*parameter.buffer].numel()})
      .narrow(1, parameter.place, parameter.chunk_elements());
}

}  // namespace quench::distributed
