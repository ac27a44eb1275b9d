#include "apps/standard_output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/printable.h"
#include "train/metrics/terminal.h"

namespace quench {
namespace {

struct State {
  bool unchanged = false;
  int first_error = 0;
  std::string unfinished;  // incomplete UTF-8 character
};

// Never destroyed: the C library may flush the stream after static destructors.
State& state() {
  static State& instance = *new State;
  return instance;
}

void send(std::string_view text) {
  const int error = try_write_to_descriptor(STDOUT_FILENO, text);
  if (state().first_error == 0) state().first_error = error;
}

// fopencookie(3) write function: number of bytes accepted, 0 on an error.
ssize_t write_cookie(void*, const char* data, std::size_t size) {
  try {
    State& s = state();
    if (s.unchanged) {
      send({data, size});
    } else {
      const std::string text = s.unfinished + std::string(data, size);
      const std::size_t ready = text.size() - unfinished_utf8(text);
      s.unfinished = text.substr(ready);
      send(printable(std::string_view(text).substr(0, ready)));
    }
  } catch (const std::exception&) {
    if (state().first_error == 0) state().first_error = ENOMEM;
  }
  return state().first_error == 0 ? static_cast<ssize_t>(size) : 0;
}

}  // namespace

void install_standard_output() {
  std::FILE* stream =
      ::fopencookie(nullptr, "w", {.read = nullptr, .write = write_cookie, .seek = nullptr, .close = nullptr});
  QUENCH_CHECK_AS(ErrorCode::io, stream != nullptr, "cannot open standard output: {}", errno_text(errno));
  std::setvbuf(stream, nullptr, ::isatty(STDOUT_FILENO) == 1 ? _IOLBF : _IOFBF, BUFSIZ);
  stdout = stream;  // glibc documents stdout as an assignable variable
}

void print_unchanged() {
  std::fflush(stdout);
  if (::isatty(STDOUT_FILENO) != 1) state().unchanged = true;
}

int standard_output_error() {
  return state().first_error;
}

int finish_standard_output() {
  const bool flushed = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  const int reason = errno;
  if (!state().unfinished.empty()) send(printable(std::exchange(state().unfinished, {})));
  if (state().first_error != 0) return state().first_error;
  if (!flushed) return reason != 0 ? reason : EIO;
  // Network file systems may report a full disk only on close.
  const int copy = ::dup(STDOUT_FILENO);
  return copy >= 0 && ::close(copy) != 0 && errno != EINTR ? errno : 0;
}

}  // namespace quench
