#include "train/plan/step_traffic.h"

#include <algorithm>
#include <memory>

#include "distributed/pipeline/pipeline_channels.h"

namespace quench {
namespace {

// In a fixed order; groups may coincide.
std::vector<std::shared_ptr<distributed::ProcessGroup>> device_groups(const distributed::Ranks& ranks) {
  std::vector<std::shared_ptr<distributed::ProcessGroup>> all;
  for (const auto& group : {ranks.world, ranks.shard, ranks.replicate, ranks.context, ranks.tensor, ranks.experts,
                            ranks.expert_shard, ranks.pipeline})
    if (std::ranges::find(all, group) == all.end()) all.push_back(group);
  return all;
}

// Channels by which a pipeline stage sends.
std::vector<std::shared_ptr<distributed::ProcessGroup>> channels_out(const distributed::Ranks& ranks) {
  std::vector<std::shared_ptr<distributed::ProcessGroup>> all;
  if (ranks.channels == nullptr) return all;
  for (const auto& channel : {ranks.channels->states_out, ranks.channels->gradients_out})
    if (channel != nullptr) all.push_back(channel);
  return all;
}

}  // namespace

std::vector<GroupTraffic> StepTraffic::transfers() const {
  std::vector<GroupTraffic> all;
  for (const auto& groups : {gathers, sums})
    for (const GroupTraffic& group : groups)
      if (group.bytes > 0) all.push_back(group);
  return all;
}

void reset_traffic(const distributed::Ranks& ranks) {
  for (const auto& group : device_groups(ranks)) group->reset_traffic();
  for (const auto& channel : channels_out(ranks)) channel->reset_traffic();
}

StepTraffic count_traffic(const distributed::Ranks& ranks, const Cluster& cluster) {
  using distributed::CollectiveKind;
  StepTraffic all;
  for (const auto& group : device_groups(ranks)) {
    GroupTraffic gathers{.ranks = group->size(),
                         .neighbours = group != ranks.replicate || ranks.size <= cluster.node_size,
                         .waits = group == ranks.context || group == ranks.tensor};
    GroupTraffic sums = gathers, exchanges = gathers;
    sums.reduces = true;
    const distributed::TrafficByKind& kinds = group->traffic();
    for (int kind = 0; kind < distributed::kCollectiveKindCount; ++kind) {
      GroupTraffic& traffic = kind == static_cast<int>(CollectiveKind::all_gather)   ? gathers
                              : kind == static_cast<int>(CollectiveKind::all_to_all) ? exchanges
                                                                                     : sums;
      traffic.calls += kinds[static_cast<std::size_t>(kind)].calls;
      traffic.bytes += kinds[static_cast<std::size_t>(kind)].bytes;
    }
    all.gathers.push_back(gathers);
    all.sums.push_back(sums);
    all.exchanges.push_back(exchanges);
  }
  for (const auto& channel : channels_out(ranks)) {
    const distributed::Traffic& sent = channel->traffic()[static_cast<std::size_t>(CollectiveKind::send)];
    all.messages.push_back({.ranks = channel->size(), .calls = sent.calls, .bytes = sent.bytes});
  }
  return all;
}

std::int64_t bytes_of(const std::vector<GroupTraffic>& groups) {
  std::int64_t bytes = 0;
  for (const GroupTraffic& group : groups)
    if (!group.waits) bytes += group.bytes;
  return bytes;
}

std::int64_t waited_bytes(const std::vector<GroupTraffic>& groups) {
  std::int64_t bytes = 0;
  for (const GroupTraffic& group : groups)
    if (group.waits) bytes += group.bytes;
  return bytes;
}

void extrapolate(StepTraffic& traffic, const StepTraffic& shorter, std::int64_t fewer, std::int64_t more) {
  const auto each = [&](std::vector<GroupTraffic>& groups, const std::vector<GroupTraffic>& less) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].bytes += (groups[i].bytes - less[i].bytes) * (more / fewer);
      groups[i].calls += (groups[i].calls - less[i].calls) * (more / fewer);
    }
  };
  each(traffic.gathers, shorter.gathers);
  each(traffic.sums, shorter.sums);
  each(traffic.exchanges, shorter.exchanges);
  each(traffic.messages, shorter.messages);
}

}  // namespace quench
