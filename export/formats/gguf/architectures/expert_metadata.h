#pragma once
// Experts in GGUF metadata: keys without prefix, as architectures write and read them.

#include "export/formats/gguf/architectures/architecture.h"

namespace quench {

inline constexpr std::string_view kGgufExpertCount = "expert_count", kGgufExpertsUsed = "expert_used_count",
                                  kGgufExpertWidth = "expert_feed_forward_length";

[[nodiscard]] inline std::vector<GgufNumber> gguf_expert_counts(const nn::ModelConfig& config) {
  return {{kGgufExpertCount, static_cast<std::uint32_t>(config.experts.count)},
          {kGgufExpertsUsed, static_cast<std::uint32_t>(config.experts.per_token)}};
}

[[nodiscard]] inline std::vector<GgufNumber> gguf_expert_sizes(const nn::ModelConfig& config) {
  std::vector<GgufNumber> numbers = gguf_expert_counts(config);
  numbers.push_back({kGgufExpertWidth, static_cast<std::uint32_t>(config.experts.intermediate_size)});
  return numbers;
}

// Copies an integer of the metadata, if the file has it, to a member of config.json.
inline void copy_gguf_integer(const GgufLookup& find, std::string_view key, std::string_view member, Json& config) {
  if (const auto value = find(key)) config.set(member, static_cast<std::int64_t>(*value));
}

}  // namespace quench
