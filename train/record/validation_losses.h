#pragma once
// Validation losses of a run over all its starts.

#include <cstdint>
#include <optional>
#include <string>

namespace quench {

// Best and last loss; those after the step of a resumed checkpoint are dropped.
struct ValidationLosses {
  struct Entry {
    std::int64_t step = 0;
    double loss = 0;
  };
  std::optional<Entry> best, last;

  // Non-finite losses only count as last.
  void add(Entry entry);
};

// `metrics`/evaluations.jsonl after step `from`, up to `last_step`; empty for a missing or unreadable file.
[[nodiscard]] ValidationLosses read_validation_losses(const std::string& metrics, std::int64_t last_step,
                                                      std::int64_t from = 0);

}  // namespace quench
