#pragma once
// Workers that failed, and the report of them.

#include <string>
#include <vector>

#include "core/json/json.h"

namespace quench::distributed {

struct Failure {
  int rank = -1;  // -1: a launcher, not a worker
  int local_rank = 0;
  int node = 0;
  std::string host;
  int process = 0;
  int status = 1;           // exit status, or 128 + signal
  std::string ending;       // "status 7", "signal 11 (Segmentation fault)"
  std::string message;      // of its error file, or empty
  std::string logs;         // the folder with its output
  double time = 0;          // seconds since 1970: of its error, else of its end
  bool is_echo = false;     // it failed because another did
  std::int64_t step = -1;   // of a training run, where the error file says so; 0: before the first
  std::string early_ranks;  // ranks that had ended with 0 before; empty for none

  [[nodiscard]] Json to_json() const;
  // Throws corrupt.
  [[nodiscard]] static Failure from_json(const Json& json);
};

// Seconds since 1970.
[[nodiscard]] double unix_time();

// Whether the second is the first once more: the same error at the same step of training, or before the first one.
// Another attempt would only come to it again. Never for programs that do not say how far they were.
[[nodiscard]] bool same_failure(const Failure& first, const Failure& second);

// The first that failed for a reason of its own; else the first. Index into `failures`, which is not empty.
[[nodiscard]] std::size_t root_cause(const std::vector<Failure>& failures);

// Of several lines, the root cause first, as torchrun's.
[[nodiscard]] std::string failure_report(const std::string& program, const std::vector<Failure>& failures);

}  // namespace quench::distributed
