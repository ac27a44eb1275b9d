#pragma once
// The file through which a worker tells its launcher why it fails: torchrun's format, at $TORCHELASTIC_ERROR_FILE.
//   {"message": {"message": "Error: text", "extraInfo": {"timestamp": "1763800000"}}}

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace quench::distributed {

struct WorkerError {
  std::string message;
  double time = 0;         // seconds since 1970
  bool is_echo = false;    // of another rank's error or end
  std::int64_t step = -1;  // of training; 0: before the first; -1: the program does not say
};

// The step of training that error files of this process name from now on; 0 before.
void set_error_step(std::int64_t step) noexcept;
// Where the environment names such a file; never throws.
void write_error_file(std::string_view message, bool is_echo) noexcept;
// Nothing where there is none, or none that can be read.
[[nodiscard]] std::optional<WorkerError> read_error_file(const std::filesystem::path& path) noexcept;

}  // namespace quench::distributed
