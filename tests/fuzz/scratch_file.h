#pragma once
// Scratch file of a fuzz target whose reader takes a path: in memory where the system has such a file system; removed
// when the program ends.

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

namespace quench::testing {

class ScratchFile {
 public:
  // `name` distinguishes the targets of one process id.
  explicit ScratchFile(const std::string& name)
      : path_(std::filesystem::path(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") /
              ("quench-" + name + "-fuzz-" + std::to_string(getpid()))) {}
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Replaces the contents.
  const std::filesystem::path& write(std::span<const std::uint8_t> bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path_;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace quench::testing
