#include "distributed/fsdp/gather_parameter.h"

#include <algorithm>

namespace quench::distributed {
namespace {

constexpr std::int64_t kNoMore = -1;

// What rank 0 says to all.
std::int64_t announced(ProcessGroup& host, std::int64_t number) {
  Tensor tensor = Tensor::from_values<std::int64_t>({1}, std::span(&number, 1));
  host.broadcast(tensor, 0, "parameter to gather").wait();
  return *tensor.data<std::int64_t>();
}

}  // namespace

Tensor gather_parameter(const nn::Parameter& parameter, ProcessGroup& shard) {
  if (!parameter.padded.defined()) return parameter.variable.value();
  const MemoryScope scope(MemoryCategory::workspace);
  Shape shape = parameter.padded.shape();
  shape[0] *= shard.size();
  const Tensor whole = Tensor::empty(shape, parameter.padded.dtype(), parameter.padded.device());
  shard.all_gather(parameter.padded, whole, parameter.name).wait();
  return whole.narrow(0, 0, parameter.global_shape[0]);
}

void with_whole_parameters(nn::CausalLm& model, const Ranks& ranks,
                           const std::function<void(const std::function<Tensor(const nn::Parameter&)>&)>& work) {
  const std::vector<nn::Parameter*> parameters = model.parameters();
  together(*ranks.host, "whole parameters", [&] {
    if (!ranks.is_first()) {
      for (std::int64_t next = 0; (next = announced(*ranks.host, 0)) != kNoMore;)
        (void)gather_parameter(*parameters[static_cast<std::size_t>(next)], *ranks.shard);
      return;
    }
    const auto whole = [&](const nn::Parameter& parameter) {
      const auto found = std::ranges::find(parameters, &parameter);
      (void)announced(*ranks.host, found - parameters.begin());
      return gather_parameter(parameter, *ranks.shard);
    };
    try {
      work(whole);
    } catch (...) {
      (void)announced(*ranks.host, kNoMore);
      throw;
    }
    (void)announced(*ranks.host, kNoMore);
  });
}

}  // namespace quench::distributed
