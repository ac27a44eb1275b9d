#pragma once
// The output of workers: into files, to the console, or both with a prefix to each line.

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "distributed/launcher/launch_options.h"
#include "distributed/store/socket.h"

namespace quench::distributed {

// One stream of a worker that passes through the launcher. Its file gets the bytes as they come; the console whole
// lines, each in one write, so that lines of different workers do not mix. A console that does not take them (a stopped
// pager) never holds the worker up: what does not fit the queue is left out there, and said. A full disk ends the file,
// not the run.
class TeedStream {
 public:
  // `console`: a descriptor, -1 for none.
  TeedStream(std::filesystem::path path, Socket file, int console, std::string prefix);

  // The end for the worker; closed by close_worker_end once it has been started.
  [[nodiscard]] int worker_end() const noexcept { return worker_end_.descriptor(); }
  void close_worker_end() noexcept { worker_end_.close(); }
  // To poll for reading; -1 when it has ended.
  [[nodiscard]] int descriptor() const noexcept { return reader_.descriptor(); }

  // What is there now.
  void pump();
  // What is there now, and the rest of a line; nothing more comes.
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

// Where the two streams of a worker go.
struct WorkerOutput {
  int stdout_to = -1;  // for WorkerStart
  int stderr_to = -1;
  std::vector<Socket> files;  // kept open until it has been started
  std::vector<std::unique_ptr<TeedStream>> streams;
};

// Opens what options ask for of worker `local_rank`, with files in `folder`.
[[nodiscard]] WorkerOutput open_worker_output(const LaunchOptions& options, int local_rank,
                                              const std::filesystem::path& folder);

}  // namespace quench::distributed
