#include "distributed/pipeline/pipeline_channels.h"

#include <array>

namespace quench::distributed {
namespace {

// The first message of a channel connects its ends: here, in an order that cannot wait in a circle.
void open(ProcessGroup& channel) {
  const Tensor token = Tensor::zeros({1}, DType::f32, channel.device());
  if (channel.rank() == 0)
    channel.send(token, 1, "start").wait();
  else
    channel.recv(token, 0, "start").wait();
}

}  // namespace

PipelineChannels::~PipelineChannels() {
  for (std::shared_ptr<ProcessGroup>* group : {&states_in, &states_out, &gradients_in, &gradients_out, &ends})
    group->reset();
  while (!made.empty()) made.pop_back();
}

std::shared_ptr<const PipelineChannels> make_pipeline_channels(const std::shared_ptr<World>& world, const Ranks& ranks,
                                                               bool ring, bool tied) {
  auto channels = std::make_shared<PipelineChannels>();
  const int stages = ranks.mesh.pipeline, own = ranks.stage();
  const auto rows = static_cast<int>(ranks.mesh.stage_ranks());
  const auto rank_of = [&](int stage) { return stage * rows + ranks.stage_rank(); };
  for (int from = 0; from < (ring ? stages : stages - 1); ++from) {
    const int to = (from + 1) % stages;
    if (own != from && own != to) continue;
    const auto connect = [&](std::string_view what, int sender, int receiver) {
      std::shared_ptr<ProcessGroup> made =
          world->make_group(fmt::format("{} {} to {}", what, rank_of(sender), rank_of(receiver)),
                            std::array{rank_of(sender), rank_of(receiver)});
      open(*made);
      channels->made.push_back(made);
      return made;
    };
    const std::shared_ptr<ProcessGroup> states = connect("states", from, to),
                                        gradients = connect("gradients", to, from);
    // Two stages in a ring are both neighbours of each other.
    if (own == from) channels->states_out = states, channels->gradients_in = gradients;
    if (own == to) channels->states_in = states, channels->gradients_out = gradients;
  }
  if (tied && stages == 2) channels->ends = ranks.pipeline;
  if (tied && stages > 2 && (own == 0 || own == stages - 1)) {
    channels->ends = world->make_group(fmt::format("table {} and {}", rank_of(0), rank_of(stages - 1)),
                                       std::array{rank_of(0), rank_of(stages - 1)});
    channels->made.push_back(channels->ends);
  }
  return channels;
}

}  // namespace quench::distributed
