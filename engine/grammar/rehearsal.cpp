#include "engine/grammar/rehearsal.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include "core/system/check.h"
#include "core/system/file.h"

namespace quench {
namespace {

constexpr char kDone = 'd', kFailed = 'f', kNoMemory = 'm';

// Address space of this process in bytes; 0 if unknown.
std::size_t address_space() {
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char text[128] = {};
  const ssize_t got = ::read(file, text, sizeof text - 1);
  ::close(file);
  std::size_t pages = 0;
  for (ssize_t i = 0; i < got && text[i] >= '0' && text[i] <= '9'; ++i)
    pages = pages * 10 + static_cast<std::size_t>(text[i] - '0');
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

void limit(int resource, std::size_t most) {
  rlimit current{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &current);
  current.rlim_cur = std::min<rlim_t>(most, current.rlim_max);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &current);
}

void report(int pipe, char kind, const char* text) {
  std::string message(1, kind);
  message += text;
  for (std::size_t at = 0; at < message.size();) {
    const ssize_t written = ::write(pipe, message.data() + at, message.size() - at);
    if (written <= 0) break;
    at += static_cast<std::size_t>(written);
  }
}

[[noreturn]] void be_child(int pipe, const RehearsalLimits& limits, const std::function<void()>& work) {
  // Files of the parent, connections among them, close when the parent closes them.
  if (pipe > 3) ::close_range(3, static_cast<unsigned>(pipe) - 1, 0);
  ::close_range(static_cast<unsigned>(pipe) + 1, ~0U, 0);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_CPU, limits.cpu_seconds);
  if (const std::size_t now = address_space(); now > 0) limit(RLIMIT_AS, now + limits.bytes);
  try {
    work();
    report(pipe, kDone, "");
  } catch (const std::bad_alloc&) {
    report(pipe, kNoMemory, "");
  } catch (const std::exception& error) {
    report(pipe, kFailed, error.what());
  }
  ::_exit(0);
}

// All that the child writes until `end`.
std::string read_report(int pipe, std::chrono::steady_clock::time_point end) {
  std::string text;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    pollfd waited{.fd = pipe, .events = POLLIN, .revents = 0};
    const int ready = left > 0 ? ::poll(&waited, 1, static_cast<int>(left)) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return text;
    char part[4096];
    const ssize_t got = ::read(pipe, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

}  // namespace

void rehearse(std::string_view what, const RehearsalLimits& limits, const std::function<void()>& work) {
  int ends[2];
  QUENCH_CHECK_AS(ErrorCode::failed, ::pipe2(ends, O_CLOEXEC) == 0, "cannot open a pipe: {}", errno_text(errno));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(limits.seconds);
  const pid_t child = ::fork();
  if (child == 0) be_child(ends[1], limits, work);
  const int fork_error = errno;
  ::close(ends[1]);
  std::string text;
  int status = 0;
  if (child > 0) {
    text = read_report(ends[0], end);
    if (text.empty()) ::kill(child, SIGKILL);  // too late, or dead
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  }
  ::close(ends[0]);
  QUENCH_CHECK_AS(ErrorCode::failed, child > 0, "cannot start a process: {}", errno_text(fork_error));
  const char kind = text.empty() ? '\0' : text.front();
  QUENCH_CHECK_AS(ErrorCode::bad_config, kind != kNoMemory, "{} takes more than {} MiB of memory: make it simpler",
                  what, limits.bytes >> 20);
  if (kind == kFailed) QUENCH_FAIL(ErrorCode::bad_config, "{}: {}", what, text.substr(1));
  if (kind == kDone) return;
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  QUENCH_CHECK_AS(ErrorCode::bad_config, signal == SIGXCPU || signal == SIGKILL,
                  "{} ends its compiler ({}): make it simpler", what,
                  signal != 0 ? fmt::format("signal {}", signal) : fmt::format("status {}", WEXITSTATUS(status)));
  QUENCH_FAIL(ErrorCode::bad_config, "{} takes more than {} s to compile and to follow: make it simpler", what,
              limits.cpu_seconds);
}

}  // namespace quench
