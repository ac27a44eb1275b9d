#include "train/generation/sliced_ranks.h"

#include <exception>

#include "core/system/log.h"
#include "distributed/ranks.h"
#include "engine/pass_script.h"
#include "train/session/parallel_setup.h"

namespace quench {

SlicedRanks join_slices(const std::string& device, const distributed::Environment& place, int threads) {
  if (threads == 0) share_threads(place);
  const Device own = device_of_rank(device, place);
  const auto ranks = std::make_shared<const distributed::Ranks>(
      distributed::make_ranks(join_world(place, own), {.tensor = place.world_size}));
  const auto end = [ranks](const distributed::GroupTensorExchange* exchange) {
    const std::unique_ptr<const distributed::GroupTensorExchange> owned(exchange);
    if (exchange->rank() > 0) return;
    try {
      end_passes(*exchange);
    } catch (const std::exception& error) {  // they learn of it as the world ends
      QUENCH_LOG_DEBUG("the other processes: {}", error.what());
    }
  };
  return {own,
          ranks->host,
          {new distributed::GroupTensorExchange(ranks->tensor, std::make_shared<distributed::ExposedCommTimer>(own),
                                                ranks->saving),
           end}};
}

}  // namespace quench
