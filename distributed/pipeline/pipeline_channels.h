#pragma once
// Connections of a pipeline stage to its neighbours: one group of two ranks for each direction, so that sends never
// wait for receives.

#include <memory>
#include <vector>

#include "distributed/ranks.h"
#include "distributed/world.h"

namespace quench::distributed {

// Groups whose rank 0 sends to rank 1; null where the stage has no such neighbour. With several chunks the stages form
// a ring.
struct PipelineChannels {
  PipelineChannels() = default;
  // Ends the groups from the last made to the first: NCCL ends a communicator once all of its ranks do, so that these
  // must not wait for each other in a circle.
  ~PipelineChannels();
  PipelineChannels(const PipelineChannels&) = delete;
  PipelineChannels& operator=(const PipelineChannels&) = delete;

  std::shared_ptr<ProcessGroup> states_in, states_out;        // hidden states, from the stage before and to the next
  std::shared_ptr<ProcessGroup> gradients_in, gradients_out;  // their gradients, from the next and to the stage before
  // First and last stage, for a tied table; on other stages null.
  std::shared_ptr<ProcessGroup> ends;
  std::vector<std::shared_ptr<ProcessGroup>> made;  // in an order that all ranks of the pipeline follow
};

// Collective over the pipeline of each rank. `ring`: stages have several chunks. `tied`: both ends hold the table.
[[nodiscard]] std::shared_ptr<const PipelineChannels> make_pipeline_channels(const std::shared_ptr<World>& world,
                                                                             const Ranks& ranks, bool ring, bool tied);

}  // namespace quench::distributed
