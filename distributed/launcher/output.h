#pragma once
// Worker output: to files, to the console, or both with a prefix per line.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "distributed/launcher/launch_options.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

// Worker stream through the launcher: raw bytes to the file; whole lines, one write each, to the console. A blocked
// console never blocks the worker: lines over the queue limit are dropped, with a note. A full disk closes the file
// only.
class TeedStream {
 public:
  // `console`: file descriptor; -1: none.
  TeedStream(std::filesystem::path path, Socket file, int console, std::string prefix);

  // For the worker; close after its start.
  [[nodiscard]] int worker_end() const noexcept { return worker_end_.descriptor(); }
  void close_worker_end() noexcept { worker_end_.close(); }
  // For poll(); -1 after the end.
  [[nodiscard]] int descriptor() const noexcept { return reader_.descriptor(); }

  // Reads available bytes.
  void pump();
  // Reads available bytes and flushes an incomplete line.
  void finish();

 private:
  void take(std::string_view bytes);
  void show(std::string_view line);
  void write_queued();

  std::filesystem::path path_;
  Socket file_;
  int console_;
  std::string prefix_;
  Socket reader_;
  Socket worker_end_;
  std::string line_;
  std::string queued_;
  std::int64_t left_out_ = 0;
};

struct WorkerOutput {
  int stdout_to = -1;  // for WorkerStart
  int stderr_to = -1;
  std::vector<Socket> files;  // open until the worker has started
  std::vector<std::unique_ptr<TeedStream>> streams;
};

// Output of worker `local_rank`, with files in `folder`.
[[nodiscard]] WorkerOutput open_worker_output(const LaunchOptions& options, int local_rank,
                                              const std::filesystem::path& folder);

}  // namespace quench::distributed
