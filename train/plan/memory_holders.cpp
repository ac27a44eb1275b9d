#include "train/plan/memory_holders.h"

#include <algorithm>

namespace quench {
namespace {

std::string_view holder_name(MemoryCategory category, MemoryPart part) {
  switch (category) {
    case MemoryCategory::parameters: return "weights";
    case MemoryCategory::gradients: return "gradients";
    case MemoryCategory::optimizer: return "optimizer state";
    case MemoryCategory::data: return "batches";
    case MemoryCategory::other: return "other";
    case MemoryCategory::activations:
    case MemoryCategory::workspace: break;
  }
  if (part == MemoryPart::logits) return "logits";
  if (category == MemoryCategory::workspace) return "workspaces";
  switch (part) {
    case MemoryPart::attention: return "activations: attention";
    case MemoryPart::feed_forward: return "activations: feed-forward";
    default: return "activations: hidden states";
  }
}

}  // namespace

std::vector<MemoryHolder> memory_holders(const MemoryStats& stats) {
  std::vector<MemoryHolder> holders;
  for (std::size_t category = 0; category < kMemoryCategoryCount; ++category)
    for (std::size_t part = 0; part < kMemoryPartCount; ++part) {
      const std::int64_t bytes = stats.peak_by_part[category][part];
      if (bytes == 0) continue;
      const std::string_view name = holder_name(static_cast<MemoryCategory>(category), static_cast<MemoryPart>(part));
      const auto found = std::ranges::find(holders, name, &MemoryHolder::name);
      if (found == holders.end())
        holders.push_back({name, bytes});
      else
        found->bytes += bytes;
    }
  std::ranges::stable_sort(holders, std::ranges::greater{}, &MemoryHolder::bytes);
  return holders;
}

}  // namespace quench
