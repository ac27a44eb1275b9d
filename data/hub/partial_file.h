#pragma once
// Content of a file as far as it has arrived, on disk, with the digest of its bytes; and the lock of a file.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "data/hub/digest.h"
#include "data/hub/http_client.h"
#include "data/hub/listing.h"

namespace quench::hub {

class PartialFile {
 public:
  // Opens or creates it, and reads what is there. Throws io for a link, no_space.
  PartialFile(std::filesystem::path path, const HubFile& file);
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  void restart();
  // Throws corrupt beyond the size that the hub lists, no_space, io.
  void append(std::span<const std::byte> bytes);
  // Digest of all bytes; restart() before further ones.
  [[nodiscard]] std::string digest() { return digest_.finish(); }
  void sync();

 private:
  void take_prefix();

  std::filesystem::path path_;
  std::uint64_t expected_;
  int file_ = -1;
  std::uint64_t size_ = 0;
  Digest digest_;
};

// Lock among processes and threads (flock, as huggingface_hub takes it), until destruction.
class FileLock {
 public:
  // Waits for others, with a message. Throws Stopped, io. File systems without locks: none is held.
  FileLock(const std::filesystem::path& path, const StopPoll& stop, std::string_view what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace quench::hub
