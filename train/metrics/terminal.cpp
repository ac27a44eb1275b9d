#include "train/metrics/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <string>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench {
namespace {

// Blocks SIGPIPE in this thread; consumes one from within the scope.
class PipeSignalBlock {
 public:
  PipeSignalBlock() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &previous_);
  }
  ~PipeSignalBlock() {
    const timespec no_wait{};
    if (!was_pending_)
      while (::sigtimedwait(&pipe_, nullptr, &no_wait) < 0 && errno == EINTR) {
      }
    ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  PipeSignalBlock(const PipeSignalBlock&) = delete;
  PipeSignalBlock& operator=(const PipeSignalBlock&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t previous_{};
  bool was_pending_ = false;
};

}  // namespace

int try_write_to_descriptor(int descriptor, std::string_view text) noexcept {
  const PipeSignalBlock block;
  while (!text.empty()) {
    const ssize_t wrote = ::write(descriptor, text.data(), text.size());
    if (wrote >= 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
      continue;
    }
    const int error = errno;
    if (error == EINTR) continue;
    if (error == EAGAIN || error == EWOULDBLOCK) {
      pollfd ready{.fd = descriptor, .events = POLLOUT, .revents = 0};
      ::poll(&ready, 1, -1);
      continue;
    }
    return error;
  }
  return 0;
}

void write_to_descriptor(int descriptor, std::string_view text) {
  const int error = try_write_to_descriptor(descriptor, text);
  QUENCH_CHECK_AS(is_no_space(error) ? ErrorCode::no_space : ErrorCode::io, error == 0, "cannot write: {}",
                  errno_text(error));
}

bool is_interactive(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

int terminal_columns(int descriptor) {
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS")) {
    const long count = std::strtol(columns, nullptr, 10);
    if (count > 0 && count < 10000) return static_cast<int>(count);
  }
  return 80;
}

bool is_utf8_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale(value);
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

void open_standard_streams() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // Lower descriptors are open: this is the lowest free one.
    if (::open("/dev/null", descriptor == 0 ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

}  // namespace quench
