#pragma once
// Counters and histograms of the server, in Prometheus' text format.

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace quench::serve {

// Any thread.
class Histogram {
 public:
  // `bounds`: ascending, of the buckets.
  Histogram(std::string name, std::string help, std::vector<double> bounds)
      : name_(std::move(name)), help_(std::move(help)), bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value);
  void write(std::string& out) const;

 private:
  std::string name_, help_;
  std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> counts_;  // not cumulative; the last: above all bounds
  double sum_ = 0;
};

// Any thread.
class Metrics {
 public:
  Metrics();

  void count_response(const std::string& path, int status);
  [[nodiscard]] std::string text(const EngineStats& stats) const;

  Histogram time_to_first_token, time_between_tokens, request_seconds;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> responses_;
};

}  // namespace quench::serve
