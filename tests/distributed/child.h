#pragma once
// A program that a test starts with variables of its own, and what it has printed.

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/testing.h"

extern char** environ;

namespace quench::testing {

struct ChildResult {
  int status = -1;     // exit status, or 128 + signal
  std::string output;  // standard output and error
};

class Child {
 public:
  // `variables` ("NAME=value") come before the test's own environment. Output goes to a file: no reader waits for a
  // reader, and the test may look at any time.
  Child(std::vector<std::string> command, std::vector<std::string> variables) {
    std::vector<std::string> names;
    for (const std::string& variable : variables) names.push_back(variable.substr(0, variable.find('=') + 1));
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable;
      bool replaced = false;
      for (const std::string& name : names) replaced = replaced || text.starts_with(name);
      if (!replaced) variables.push_back(text);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output_file().c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    const int error = ::posix_spawn(&process_, command.front().c_str(), &actions, nullptr, pointers(command).data(),
                                    pointers(variables).data());
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::system_error(error, std::generic_category(), command.front());
  }
  ~Child() {
    if (process_ <= 0) return;
    kill(SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t id() const { return process_; }
  void kill(int signal) const { ::kill(process_, signal); }
  [[nodiscard]] std::string output() const { return read_file(output_file()); }

  // Until it has printed the text; false after 30 s.
  [[nodiscard]] bool wait_for(const std::string& text) const {
    for (int i = 0; i < 3000; ++i) {
      if (output().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  ChildResult wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output()};
  }

 private:
  [[nodiscard]] std::string output_file() const { return (folder_ / "output.txt").string(); }
  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& string : strings) result.push_back(string.data());
    result.push_back(nullptr);
    return result;
  }

  TempDir folder_;
  pid_t process_ = -1;
};

}  // namespace quench::testing
