#include "apps/serve/api/metrics.h"

#include <algorithm>

#include "core/system/check.h"

namespace quench::serve {
namespace {

void write_header(std::string& out, std::string_view name, std::string_view help, std::string_view type) {
  out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

struct StatsLine {
  std::string_view name, help, type;
  std::int64_t EngineStats::*value;
};

constexpr StatsLine kStats[] = {
    {"quench_requests_running", "Sequences that are being generated", "gauge", &EngineStats::running},
    {"quench_requests_waiting", "Sequences that wait for memory or a place", "gauge", &EngineStats::waiting},
    {"quench_cache_tokens", "Size of the KV cache in tokens", "gauge", &EngineStats::cache_tokens},
    {"quench_cache_free_tokens", "Free tokens of the KV cache, kept prefixes included", "gauge",
     &EngineStats::free_tokens},
    {"quench_requests_total", "Sequences since the start", "counter", &EngineStats::requests},
    {"quench_requests_failed_total", "Sequences that failed", "counter", &EngineStats::failed},
    {"quench_prompt_tokens_total", "Tokens of prompts", "counter", &EngineStats::prompt_tokens},
    {"quench_reused_tokens_total", "Tokens of prompts that were found in the cache", "counter",
     &EngineStats::reused_tokens},
    {"quench_generated_tokens_total", "Tokens generated", "counter", &EngineStats::generated_tokens},
    {"quench_preemptions_total", "Sequences that gave their cache back", "counter", &EngineStats::preempted},
    {"quench_passes_total", "Passes of the model", "counter", &EngineStats::passes},
};

}  // namespace

void Histogram::observe(double value) {
  const auto bucket = static_cast<std::size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin());
  const std::lock_guard lock(mutex_);
  ++counts_[bucket];
  sum_ += value;
}

void Histogram::write(std::string& out) const {
  write_header(out, name_, help_, "histogram");
  const std::lock_guard lock(mutex_);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i)
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name_, bounds_[i], below += counts_[i]);
  below += counts_.back();
  out += fmt::format("{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name_, below, name_, sum_, name_, below);
}

Metrics::Metrics()
    : time_to_first_token("quench_time_to_first_token_seconds", "From a request to its first token",
                          {.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}),
      time_between_tokens("quench_time_between_tokens_seconds", "Between two tokens of a sequence",
                          {.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}),
      request_seconds("quench_request_seconds", "From a request to its end",
                      {.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}) {}

void Metrics::count_response(const std::string& path, int status) {
  const std::lock_guard lock(mutex_);
  ++responses_[{path, status}];
}

std::string Metrics::text(const EngineStats& stats) const {
  std::string out;
  for (const StatsLine& line : kStats) {
    write_header(out, line.name, line.help, line.type);
    out += fmt::format("{} {}\n", line.name, stats.*line.value);
  }
  for (const Histogram* histogram : {&time_to_first_token, &time_between_tokens, &request_seconds})
    histogram->write(out);
  write_header(out, "quench_http_responses_total", "Responses by path and status", "counter");
  const std::lock_guard lock(mutex_);
  for (const auto& [key, count] : responses_)
    out += fmt::format("quench_http_responses_total{{path=\"{}\",status=\"{}\"}} {}\n", key.first, key.second, count);
  return out;
}

}  // namespace quench::serve
