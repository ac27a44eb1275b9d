#include "train/plan/limits/longest_sequence.h"

#include <algorithm>
#include <numeric>

#include "core/system/check.h"
#include "train/metrics/step_metrics.h"
#include "train/plan/memory_holders.h"
#include "train/session/model_setup.h"

namespace quench {
namespace {

constexpr std::int64_t kUnit = 1024, kShortUnit = 64;
constexpr std::int64_t kMostPassTokens = std::int64_t{1} << 31;  // kernels count them in 32 bits

class LengthSearch {
 public:
  LengthSearch(const RunConfig& config, Device target, const Cluster& cluster)
      : config_(config), target_(target), cluster_(cluster) {}

  [[nodiscard]] RunEstimate estimate(std::int64_t tokens) const {
    RunConfig config = config_;
    config.data.seq_len = tokens;
    return fit_run(config, target_, cluster_);
  }

  // Largest fitting multiple of `unit`; 0 if there is none.
  [[nodiscard]] std::int64_t largest(std::int64_t unit) const {
    const std::int64_t most = (kMostPassTokens - 1) / config_.training.micro_batch_size / unit;
    std::int64_t fits = 0, beyond = 1;
    while (beyond <= most && estimate(beyond * unit).fits()) {
      fits = beyond;
      beyond *= 2;
    }
    beyond = std::min(beyond, most + 1);
    while (beyond - fits > 1) {
      const std::int64_t middle = std::midpoint(fits, beyond);
      (estimate(middle * unit).fits() ? fits : beyond) = middle;
    }
    return fits * unit;
  }

 private:
  const RunConfig& config_;
  Device target_;
  const Cluster& cluster_;
};

std::vector<HolderGrowth> growth(const RunEstimate& at, std::int64_t tokens, const RunEstimate& shorter,
                                 std::int64_t shorter_tokens) {
  std::vector<HolderGrowth> all;
  const std::vector<MemoryHolder> before = memory_holders(shorter.device);
  for (const MemoryHolder& holder : memory_holders(at.device)) {
    const auto found = std::ranges::find(before, holder.name, &MemoryHolder::name);
    const std::int64_t less = found == before.end() ? 0 : found->bytes;
    all.push_back({holder.name, holder.bytes,
                   static_cast<double>(holder.bytes - less) / static_cast<double>(tokens - shorter_tokens)});
  }
  std::ranges::stable_sort(all, std::ranges::greater{}, &HolderGrowth::bytes_per_token);
  return all;
}

std::string gib(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 30));
}

// "79.1 of 79.6 GiB of device memory"; host memory where that is the limit.
std::string use(const RunEstimate& e, bool host) {
  const std::int64_t needed = host ? e.host_bytes : e.total_bytes;
  const std::optional<std::int64_t> available = host ? e.host_available_bytes : e.available_bytes;
  return fmt::format("{} of {} GiB of {} memory", gib(needed), gib(available.value_or(0)), host ? "host" : "device");
}

}  // namespace

LongestSequence longest_sequence(const RunConfig& config, Device target, const Cluster& cluster) {
  const LengthSearch search(config, target, cluster);
  LongestSequence longest;
  const std::int64_t parts = config.parallel.context > 1 ? 2 * config.parallel.context : 1;
  for (const std::int64_t unit : {kUnit, kShortUnit}) {
    longest.unit = std::lcm(unit, parts);
    const RunEstimate shortest = search.estimate(longest.unit);
    QUENCH_CHECK_AS(
        ErrorCode::bad_config, shortest.available_bytes.has_value(),
        "--max-seq-len: the memory of {} is unknown; name a GPU (--gpu H100) or a size (--memory-limit 80GB)",
        target.to_string());
    if (shortest.fits() || unit == kShortUnit) break;
  }
  longest.tokens = search.largest(longest.unit);
  if (longest.tokens == 0) require_memory(search.estimate(longest.unit), target);
  longest.model_positions = run_model_config(config).context_length();
  longest.estimate = search.estimate(longest.tokens);
  if ((longest.tokens + longest.unit) * config.training.micro_batch_size < kMostPassTokens)
    longest.next = search.estimate(longest.tokens + longest.unit);
  const std::int64_t half = longest.tokens / longest.unit / 2 * longest.unit;
  if (half > 0) longest.holders = growth(longest.estimate, longest.tokens, search.estimate(half), half);
  return longest;
}

std::string to_string(const LongestSequence& longest) {
  const bool host = longest.next && longest.next->fits_device();
  std::string text = fmt::format("longest sequence {} tokens, in steps of {}: {}\n", format_count(longest.tokens),
                                 format_count(longest.unit), use(longest.estimate, host));
  if (longest.next)
    text += fmt::format("one step longer  {} tokens would take {}\n", format_count(longest.tokens + longest.unit),
                        use(*longest.next, host));
  if (longest.tokens > longest.model_positions)
    text += fmt::format(
        "the model        has {} positions: a longer run needs model.rope_scaling, or "
        "model.max_position_embeddings\n",
        format_count(longest.model_positions));
  if (!longest.holders.empty()) text += "\nholders at the peak        MiB   KiB a further token\n";
  for (const HolderGrowth& holder : longest.holders)
    text += fmt::format("  {:<26}{:>12.1f}{:>12.2f}\n", holder.name, static_cast<double>(holder.bytes) / (1 << 20),
                        holder.bytes_per_token / 1024);
  return text + "\nthe run with that length\n\n" + to_string(longest.estimate);
}

Json to_json(const LongestSequence& longest) {
  Json json = Json::object();
  json.set("max_seq_len", longest.tokens);
  json.set("unit", longest.unit);
  json.set("model_positions", longest.model_positions);
  json.set("next_total_bytes", longest.next ? Json(longest.next->total_bytes) : Json());
  json.set("next_host_bytes", longest.next ? Json(longest.next->host_bytes) : Json());
  Json holders = Json::array();
  for (const HolderGrowth& holder : longest.holders) {
    Json entry = Json::object();
    entry.set("name", holder.name);
    entry.set("bytes", holder.bytes);
    entry.set("bytes_per_token", holder.bytes_per_token);
    holders.push_back(std::move(entry));
  }
  json.set("holders", std::move(holders));
  json.set("estimate", to_json(longest.estimate));
  return json;
}

}  // namespace quench
