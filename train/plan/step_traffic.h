#pragma once
// Traffic of a step that is simulated on the meta device, whose process groups count bytes.

#include <cstdint>
#include <vector>

#include "distributed/ranks.h"
#include "train/plan/step_time.h"

namespace quench {

// By group: all-gathers, reductions, expert all-to-all; messages to other pipeline stages.
struct StepTraffic {
  std::vector<GroupTraffic> gathers, sums, exchanges, messages;

  // All-gathers and reductions of groups that have any.
  [[nodiscard]] std::vector<GroupTraffic> transfers() const;
};

void reset_traffic(const distributed::Ranks& ranks);
// Since the last reset.
[[nodiscard]] StepTraffic count_traffic(const distributed::Ranks& ranks, const Cluster& cluster);

// Traffic of a step of `more` micro-batches than `traffic`, of which `shorter` has `fewer` less: inner ones are
// identical. `fewer` divides `more`.
void extrapolate(StepTraffic& traffic, const StepTraffic& shorter, std::int64_t fewer, std::int64_t more);

// Bytes of groups that overlap with computation, and of those that wait.
[[nodiscard]] std::int64_t bytes_of(const std::vector<GroupTraffic>& groups);
[[nodiscard]] std::int64_t waited_bytes(const std::vector<GroupTraffic>& groups);

}  // namespace quench
