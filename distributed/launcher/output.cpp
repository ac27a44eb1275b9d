#include "distributed/launcher/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/printable.h"

namespace quench::distributed {
namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 10;  // longer ones are split
constexpr std::size_t kMostQueued = std::size_t{4} << 20;

Socket open_log(const std::filesystem::path& path) {
  Socket file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  QUENCH_CHECK_AS(ErrorCode::io, file.is_open(), "cannot write {}: {}", path.string(), errno_text(errno));
  return file;
}

bool takes_bytes(int descriptor) {
  pollfd entry{descriptor, POLLOUT, 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace

TeedStream::TeedStream(std::filesystem::path path, Socket file, int console, std::string prefix)
    : path_(std::move(path)), file_(std::move(file)), console_(console), prefix_(std::move(prefix)) {
  int ends[2];
  QUENCH_CHECK_AS(ErrorCode::failed, ::pipe2(ends, O_CLOEXEC) == 0, "pipe: {}", errno_text(errno));
  reader_ = Socket(ends[0]);
  worker_end_ = Socket(ends[1]);
  ::fcntl(reader_.descriptor(), F_SETFL, O_NONBLOCK);
}

void TeedStream::pump() {
  char buffer[16384];
  while (reader_.is_open()) {
    const ssize_t got = ::read(reader_.descriptor(), buffer, sizeof buffer);
    if (got > 0) {
      take({buffer, static_cast<std::size_t>(got)});
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else {
      if (got == 0) reader_.close();
      break;
    }
  }
  write_queued();
}

void TeedStream::finish() {
  pump();
  if (!line_.empty()) show(std::exchange(line_, {}) + "\n");
  if (left_out_ > 0)
    show(fmt::format("({} bytes are not shown here; {} has them)\n", std::exchange(left_out_, 0),
                     printable(path_.string())));
  write_queued();
  reader_.close();
}

void TeedStream::take(std::string_view bytes) {
  for (std::string_view rest = bytes; file_.is_open() && !rest.empty();) {
    const ssize_t written = ::write(file_.descriptor(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      QUENCH_LOG_WARN("cannot write {}: {}; the log ends here, the run continues", path_.string(), errno_text(errno));
      file_.close();
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t count = end == std::string_view::npos ? bytes.size() : end + 1;
    line_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    if (end != std::string_view::npos)
      show(std::exchange(line_, {}));
    else if (line_.size() >= kLongestLine)
      show(std::exchange(line_, {}) + "\n");
  }
}

void TeedStream::show(std::string_view line) {
  if (console_ < 0) return;
  if (queued_.size() > kMostQueued) {
    left_out_ += static_cast<std::int64_t>(line.size());
    return;
  }
  queued_.append(prefix_).append(line);
  if (queued_.size() > kLongestLine) write_queued();
}

void TeedStream::write_queued() {
  // Whole lines only, so that workers' lines do not interleave.
  while (!queued_.empty() && takes_bytes(console_)) {
    const std::size_t end = queued_.find('\n') + 1;
    const ssize_t written = ::write(console_, queued_.data(), end);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {  // console closed
      queued_.clear();
      console_ = -1;
      return;
    }
    queued_.erase(0, static_cast<std::size_t>(written));
  }
}

WorkerOutput open_worker_output(const LaunchOptions& options, int local_rank, const std::filesystem::path& folder) {
  const auto index = static_cast<std::size_t>(local_rank);
  const bool on_console = options.on_console[index];
  WorkerOutput output;
  const auto open_stream = [&](Streams stream, const char* name, int console) {
    const std::filesystem::path path = folder / name;
    if ((options.tee[index] & stream) != 0) {
      output.streams.push_back(std::make_unique<TeedStream>(path, open_log(path), on_console ? console : -1,
                                                            fmt::format("[{}{}]:", options.role, local_rank)));
      return output.streams.back()->worker_end();
    }
    if ((options.redirects[index] & stream) == 0 && on_console) return -1;
    output.files.push_back(open_log(path));
    return output.files.back().descriptor();
  };
  output.stdout_to = open_stream(kStdout, "stdout.log", STDOUT_FILENO);
  output.stderr_to = open_stream(kStderr, "stderr.log", STDERR_FILENO);
  return output;
}

}  // namespace quench::distributed
