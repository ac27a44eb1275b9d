#pragma once
// Error file of a worker for its launcher, in torchrun's format, at $TORCHELASTIC_ERROR_FILE.
//
//   {"message": {"message": "Error: text", "extraInfo": {"timestamp": "1763800000"}}}

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace quench::distributed {

struct WorkerError {
  std::string message;
  double time = 0;         // seconds since 1970
  bool is_echo = false;    // caused by another rank
  std::int64_t step = -1;  // 0: before the first; -1: unknown
};

// Step of later error files; default 0.
void set_error_step(std::int64_t step) noexcept;
// False for all but the first process of a node whose launcher reads error files: what all of them get wrong alike is
// printed once.
[[nodiscard]] bool prints_shared_errors() noexcept;
// No-op without such a file in the environment; never throws.
void write_error_file(std::string_view message, bool is_echo) noexcept;
// Nothing if missing or unreadable.
[[nodiscard]] std::optional<WorkerError> read_error_file(const std::filesystem::path& path) noexcept;

}  // namespace quench::distributed
