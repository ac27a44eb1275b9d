#pragma once
// Runs a child program with the fault shim and collects what it prints.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tests/testing.h"

extern char** environ;

namespace quench::testing {

struct Finished {
  int status = -1;     // exit status; -1 when a signal ended it
  int signal = 0;      // that signal
  std::string output;  // standard output and error
  [[nodiscard]] bool printed(std::string_view text) const { return output.find(text) != std::string::npos; }
};

class Process {
 public:
  // `fault`: value of QUENCH_FAULT; empty runs without the shim unless `trace` names a trace file.
  explicit Process(std::vector<std::string> command, const std::string& fault = {}, const std::string& trace = {}) {
    std::vector<std::string> variables;
    for (char** variable = environ; *variable != nullptr; ++variable) variables.emplace_back(*variable);
    if (!fault.empty()) variables.push_back("QUENCH_FAULT=" + fault);
    if (!trace.empty()) variables.push_back("QUENCH_FAULT_TRACE=" + trace);
    if (!fault.empty() || !trace.empty()) {
      variables.push_back("LD_PRELOAD=" + fault_shim_path());
      // The sanitizer's runtime is not the first library then, which it would refuse.
      const char* options = std::getenv("ASAN_OPTIONS");
      variables.push_back(std::string("ASAN_OPTIONS=verify_asan_link_order=0:") + (options ? options : ""));
    }
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    output_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    const int error = ::posix_spawn(&process_, command.front().c_str(), &actions, nullptr, pointers(command).data(),
                                    pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) throw std::system_error(error, std::generic_category(), command.front());
  }
  ~Process() {
    if (process_ > 0) {
      kill();
      wait();
    }
    ::close(output_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t id() const { return process_; }
  void kill() const { ::kill(process_, SIGKILL); }

  // Reads until the output contains the text; false if the program ended before.
  bool wait_for(std::string_view text) {
    while (collected_.find(text) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }

  Finished wait() {
    while (read_some()) {
    }
    Finished result;
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    if (WIFEXITED(status)) result.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    result.output = std::move(collected_);
    return result;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& string : strings) result.push_back(string.data());
    result.push_back(nullptr);
    return result;
  }

  bool read_some() {
    char buffer[4096];
    ssize_t got = 0;
    do {
      got = ::read(output_, buffer, sizeof buffer);
    } while (got < 0 && errno == EINTR);
    if (got > 0) collected_.append(buffer, static_cast<std::size_t>(got));
    return got > 0;
  }

  pid_t process_ = -1;
  int output_ = -1;
  std::string collected_;
};

// checkpoint_driver FOLDER LAST options...
inline std::vector<std::string> driver(const std::filesystem::path& folder, int last,
                                       const std::vector<std::string>& options = {}) {
  std::vector<std::string> command{checkpoint_driver_path(), folder.string(), std::to_string(last)};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

// A scratch folder in memory where the system has one: what is tested here does not depend on the disk.
class MemoryDir {
 public:
  MemoryDir() {
    const bool shared_memory = ::access("/dev/shm", W_OK) == 0;
    std::string pattern =
        (shared_memory ? "/dev/shm" : std::filesystem::temp_directory_path().string()) + "/quench-test-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~MemoryDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MemoryDir(const MemoryDir&) = delete;
  MemoryDir& operator=(const MemoryDir&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace quench::testing
