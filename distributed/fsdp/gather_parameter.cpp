#include "distributed/fsdp/gather_parameter.h"

#include <algorithm>
#include <exception>

#include "nn/modules/slice_map.h"

namespace quench::distributed {
namespace {

constexpr std::int64_t kNoMore = -1;

// Rows of all ranks that shard this one's slice of the parameter.
Tensor gather_slice(const nn::Parameter& parameter, const Ranks& ranks) {
  if (parameter.sharding.is_whole()) return parameter.variable.value();
  const MemoryScope scope(MemoryCategory::workspace);
  const auto gathered = [&](const Tensor& rows, ProcessGroup& group) {
    Shape shape = rows.shape();
    shape[0] *= group.size();
    const Tensor all = Tensor::empty(shape, rows.dtype(), rows.device());
    group.all_gather(rows, all, parameter.name).wait();
    return all;
  };
  const bool has_parts = parameter.sharding.parts > 1;
  Tensor part = parameter.variable.value();
  if (parameter.padded.defined())
    part = gathered(parameter.padded, has_parts ? *ranks.expert_shard : *ranks.shard)
               .narrow(0, 0, parameter.sharding.region(parameter.global_shape[0]).rows);
  return has_parts ? gathered(part, *ranks.experts) : part;
}

// Number of rank 0.
std::int64_t announced(ProcessGroup& host, std::int64_t number) {
  Tensor tensor = Tensor::from_values<std::int64_t>({1}, std::span(&number, 1));
  host.broadcast(tensor, 0, "parameter to gather").wait();
  return *tensor.data<std::int64_t>();
}

// Ranks do not synchronise between announcements: a failing rank notifies the others.
Tensor gather_announced(const nn::Parameter& parameter, const Ranks& ranks, const nn::WholeRows& gather) {
  try {
    return gather ? gather(parameter) : gather_parameter(parameter, ranks);
  } catch (const CommunicationError&) {
    throw;  // known to all ranks
  } catch (const std::exception& error) {
    ranks.host->give_up(fmt::format("rank {} cannot gather {}: {}", ranks.rank, parameter.name, error.what()));
    throw;
  }
}

}  // namespace

Tensor gather_parameter(const nn::Parameter& parameter, const Ranks& ranks) {
  if (parameter.slice.is_whole()) return gather_slice(parameter, ranks);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor own = gather_slice(parameter, ranks);
  Shape shape = own.shape();
  shape[0] *= ranks.tensor->size();
  const Tensor all = Tensor::empty(shape, own.dtype(), own.device());
  ranks.tensor->all_gather(own, all, parameter.name).wait();
  return nn::join_slices(parameter, all);
}

void with_whole_parameters(const std::vector<nn::Parameter*>& parameters, const Ranks& ranks,
                           const std::function<void(const nn::WholeRows&)>& work, const nn::WholeRows& gather) {
  if (ranks.is_single()) return work({});
  const auto serve = [&] {
    for (std::int64_t next = 0; (next = announced(*ranks.host, 0)) != kNoMore;)
      (void)gather_announced(*parameters[static_cast<std::size_t>(next)], ranks, gather);
  };
  const auto lead = [&] {
    const auto whole = [&](const nn::Parameter& parameter) {
      const auto found = std::ranges::find(parameters, &parameter);
      QUENCH_CHECK(found != parameters.end(), "{} is none of the parameters to gather", parameter.name);
      (void)announced(*ranks.host, found - parameters.begin());
      return gather_announced(parameter, ranks, gather);
    };
    std::exception_ptr failed;
    try {
      work(whole);
    } catch (...) {
      failed = std::current_exception();
    }
    try {
      (void)announced(*ranks.host, kNoMore);
    } catch (const std::exception&) {
      if (!failed) throw;
    }
    if (failed) std::rethrow_exception(failed);
  };
  constexpr std::string_view label = "whole parameters";
  // Ranks may still read the parameters' sources; afterwards all wait for rank 0 only.
  together(*ranks.host, label, [] {});
  if (ranks.is_first())
    together(*ranks.host, label, lead, Patience::usual);
  else
    together(*ranks.host, label, serve);
}

}  // namespace quench::distributed
