#include "core/system/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::time_t kFileSeconds = 60;  // briefly unlocked between close and rename

// FNV-1a, draft-eastlake-fnv.
std::string hash_text(std::string_view text) {
  std::uint32_t hash = 0x811C9DC5;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193;
  return fmt::format("{:08x}", hash);
}

struct Machine {
  std::string host;
  std::string boot;
};

const Machine& this_machine() {
  static const Machine machine = [] {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    std::string boot(64, '\0');
    const int file = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t size = file >= 0 ? ::read(file, boot.data(), boot.size()) : 0;
    if (file >= 0) ::close(file);
    boot.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    return Machine{hash_text(name.data()), hash_text(boot)};
  }();
  return machine;
}

struct TemporaryName {
  std::string_view name;  // final file
  std::string_view host;
  std::string_view boot;
};

// Up to the next '-', of these digits.
std::optional<std::string_view> take_field(std::string_view& text, std::string_view digits) {
  const std::string_view field = text.substr(0, text.find('-'));
  const bool ends = text.size() == field.size() + 1;  // trailing '-'
  if (ends || field.empty() || field.find_first_not_of(digits) != std::string_view::npos) return std::nullopt;
  text.remove_prefix(std::min(field.size() + 1, text.size()));
  return field;
}

std::optional<TemporaryName> parse_temporary_name(std::string_view text) {
  constexpr std::string_view kDecimal = "0123456789", kHexadecimal = "0123456789abcdef";
  const std::size_t mark = text.rfind(kTemporaryMark);
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  std::string_view rest = text.substr(mark + kTemporaryMark.size());
  const auto process = take_field(rest, kDecimal);
  const auto host = take_field(rest, kHexadecimal), boot = take_field(rest, kHexadecimal);
  const auto time = take_field(rest, kHexadecimal), number = take_field(rest, kDecimal);
  if (!process || !host || !boot || !time || !number || !rest.empty()) return std::nullopt;
  if (host->size() != 8 || boot->size() != 8) return std::nullopt;
  return TemporaryName{text.substr(0, mark), *host, *boot};
}

bool is_at(int descriptor, const fs::path& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(descriptor, &held) == 0 && ::lstat(path.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
         held.st_ino == named.st_ino;
}

// True if the writer has exited; the lock is then ours.
bool is_abandoned(int descriptor) {
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) return false;
  if (S_ISREG(info.st_mode) && std::time(nullptr) - info.st_mtim.tv_sec < kFileSeconds) return false;
  if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return false;
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
}

void remove_if_abandoned(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return;
  if (is_abandoned(descriptor) && is_at(descriptor, path)) {
    QUENCH_LOG_INFO("removing {}, left by a process that was killed", path.string());
    std::error_code error;
    fs::remove_all(path, error);
    if (error) QUENCH_LOG_WARN("cannot remove {}: {}", path.string(), error.message());
  }
  ::close(descriptor);
}

}  // namespace

fs::path temporary_name(const fs::path& path) {
  static std::atomic<unsigned> counter{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const Machine& machine = this_machine();
  auto name = path.filename().string();
  name += fmt::format("{}{}-{}-{}-{:x}-{}", kTemporaryMark, ::getpid(), machine.host, machine.boot,
                      static_cast<std::uint64_t>(now) & 0xFFFFFFFFu, counter++);
  return folder_of(path) / name;
}

bool is_temporary_name(std::string_view name) noexcept {
  return parse_temporary_name(name).has_value();
}

bool lock_temporary(int descriptor) noexcept {
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

void remove_stale_temporaries(const fs::path& folder, std::string_view name) noexcept {
  try {
    std::error_code error;
    std::vector<fs::path> found;
    fs::directory_iterator entries(folder, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      const std::string file = entries->path().filename().string();
      const auto parsed = parse_temporary_name(file);
      if (!parsed || (!name.empty() && parsed->name != name)) continue;
      if (parsed->host == this_machine().host || parsed->boot == this_machine().boot) found.push_back(entries->path());
    }
    for (const fs::path& path : found) remove_if_abandoned(path);
  } catch (const std::exception& error) {
    QUENCH_LOG_WARN("cannot look for what was left in {}: {}", folder.string(), error.what());
  }
}

StagingFolder::StagingFolder(const fs::path& target) {
  std::error_code error;
  const fs::path parent = folder_of(target);
  fs::create_directories(parent, error);
  QUENCH_CHECK_AS(ErrorCode::io, fs::is_directory(parent), "cannot create the folder {}: {}", parent.string(),
                  error ? error.message() : "a file of that name exists");
  for (int attempt = 0; attempt < 3; ++attempt) {
    path_ = temporary_name(target);
    const int made = ::mkdir(path_.c_str(), 0755);
    const int reason = errno;
    QUENCH_CHECK_AS(reason == ENOSPC || reason == EDQUOT ? ErrorCode::no_space : ErrorCode::io, made == 0,
                    "cannot create the folder {}: {}", path_.string(), errno_text(reason));
    lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Until locked, another process may remove it as stale.
    if (lock_ >= 0 && lock_temporary(lock_) && is_at(lock_, path_)) return;
    if (lock_ >= 0) ::close(lock_);
    lock_ = -1;
    fs::remove_all(path_, error);
  }
  QUENCH_FAIL(ErrorCode::io, "cannot keep a temporary folder for {}: another process removes it", target.string());
}

StagingFolder::~StagingFolder() {
  std::error_code ignored;
  if (!released_) fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace quench
