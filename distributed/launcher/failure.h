#pragma once
// Failures of launched processes, their root cause and report.

#include <string>
#include <vector>

#include "core/json/json.h"

namespace quench::distributed {

struct Failure {
  int rank = -1;  // -1: a launcher
  int local_rank = 0;
  int node = 0;
  std::string host;
  int process = 0;
  int status = 1;      // exit status, or 128 + signal
  std::string ending;  // "status 7", "signal 11 (Segmentation fault)"
  std::string message;
  std::string logs;
  double time = 0;          // seconds since 1970: of its error, else its exit
  bool is_echo = false;     // caused by another worker
  std::int64_t step = -1;   // training step from the error file; 0: before the first
  std::string early_ranks;  // that had exited with 0; may be empty

  [[nodiscard]] Json to_json() const;
  // Throws corrupt.
  [[nodiscard]] static Failure from_json(const Json& json);
};

// Seconds since 1970.
[[nodiscard]] double unix_time();

// Repeated failure: same error at the same training step, or before the first. False for programs that report no step.
[[nodiscard]] bool same_failure(const Failure& first, const Failure& second);

// Index into `failures` (not empty): the first not caused by another, else the first.
[[nodiscard]] std::size_t root_cause(const std::vector<Failure>& failures);

// Root cause first, in torchrun's layout.
[[nodiscard]] std::string failure_report(const std::string& program, const std::vector<Failure>& failures);

}  // namespace quench::distributed
