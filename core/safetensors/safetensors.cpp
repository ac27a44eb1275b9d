#include "core/safetensors/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <numeric>
#include <utility>

#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/threads.h"

namespace quench {
namespace {

constexpr std::size_t kReadPiece = std::size_t{64} << 20;
// Bytes per thread below which a further thread does not pay.
constexpr std::size_t kThreadPiece = std::size_t{2} << 20;
constexpr std::size_t kMaxReaders = 16;

}  // namespace

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path) : path_(path) {
  // FIFOs do not block and are rejected below.
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file_ < 0)
    QUENCH_FAIL(errno == ENOENT ? ErrorCode::not_found : ErrorCode::io, "cannot open {}: {}", path.string(),
                errno_text(errno));
  try {
    struct stat info {};
    QUENCH_CHECK_AS(ErrorCode::io, ::fstat(file_, &info) == 0, "cannot inspect {}: {}", path.string(),
                    errno_text(errno));
    QUENCH_CHECK_AS(ErrorCode::io, S_ISREG(info.st_mode), "{} is not a regular file", path.string());
    const auto size = static_cast<std::uint64_t>(info.st_size);
    std::vector<std::uint8_t> head(std::min<std::uint64_t>(size, kSafetensorsProbeBytes));
    read_at(0, std::as_writable_bytes(std::span(head)));
    // Length validated before allocation.
    const std::uint64_t length = 8 + safetensors_header_length(head, size, path.string());
    if (head.size() < length) {
      const std::size_t probed = head.size();
      head.resize(length);
      read_at(probed, std::as_writable_bytes(std::span(head)).subspan(probed));
    }
    header_ = parse_safetensors_header(head, size, path.string());
  } catch (...) {
    ::close(file_);
    throw;
  }
  for (const std::string& warning : header_.warnings) QUENCH_LOG_WARN("{}", warning);
  by_name_.resize(header_.entries.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](auto a, auto b) { return header_.entries[a].name < header_.entries[b].name; });
}

SafetensorsReader::~SafetensorsReader() {
  if (file_ >= 0) ::close(file_);
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      header_(std::move(other.header_)),
      by_name_(std::move(other.by_name_)) {}

const SafetensorsEntry* SafetensorsReader::find(std::string_view name) const noexcept {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [&](auto i, std::string_view n) { return header_.entries[i].name < n; });
  if (place == by_name_.end() || header_.entries[*place].name != name) return nullptr;
  return &header_.entries[*place];
}

const SafetensorsEntry& SafetensorsReader::at(std::string_view name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  QUENCH_FAIL(ErrorCode::not_found, "{} has no tensor \"{}\"", path_.string(), name);
}

void SafetensorsReader::read(const SafetensorsEntry& entry, std::span<std::byte> out, std::uint64_t offset) const {
  QUENCH_CHECK(offset <= entry.nbytes() && out.size() <= entry.nbytes() - offset,
               "{}: bytes {} to {} of tensor \"{}\", which has {}", path_.string(), offset, offset + out.size(),
               entry.name, entry.nbytes());
  read_at(header_.data_start + entry.begin + offset, out);
}

void SafetensorsReader::prefetch(const SafetensorsEntry& entry) const noexcept {
  ::posix_fadvise(file_, static_cast<off_t>(header_.data_start + entry.begin), static_cast<off_t>(entry.nbytes()),
                  POSIX_FADV_WILLNEED);
}

void SafetensorsReader::read_at(std::uint64_t position, std::span<std::byte> out) const {
  const std::size_t readers =
      std::min({out.size() / kThreadPiece, kMaxReaders, static_cast<std::size_t>(thread_count())});
  if (readers < 2 || in_parallel()) return read_serially(position, out);
  // The error of the first damaged part is thrown.
  std::vector<std::exception_ptr> errors(readers);
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(readers))
  for (std::size_t i = 0; i < readers; ++i) {
    const std::size_t begin = out.size() * i / readers, end = out.size() * (i + 1) / readers;
    try {
      read_serially(position + begin, out.subspan(begin, end - begin));
    } catch (...) {
      errors[i] = std::current_exception();
    }
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void SafetensorsReader::read_serially(std::uint64_t position, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(file_, out.data(), std::min(out.size(), kReadPiece), static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    QUENCH_CHECK_AS(ErrorCode::io, got >= 0, "cannot read {}: {}", path_.string(), errno_text(errno));
    QUENCH_CHECK_AS(ErrorCode::io, got > 0, "{} became shorter while it was in use: no byte {}", path_.string(),
                    position);
    position += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace quench
