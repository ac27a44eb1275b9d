#pragma once
// Runs the program as a user does.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/testing.h"

extern char** environ;

namespace quench::testing {

struct Outcome {
  int status = -1;     // exit status, or 128 + signal
  std::string output;  // standard output
  std::string errors;  // standard error
};

// Starts `quench <arguments>` in a folder, its output going to files in that folder.
inline pid_t start_program(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program_path());
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::chdir(folder.c_str()) != 0) ::_exit(126);
    const int out = ::open("stdout.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    const int err = ::open("stderr.txt", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out, 1);
    ::dup2(err, 2);
    ::execv(raw[0], raw.data());
    ::_exit(127);
  }
  return child;
}

inline Outcome finish_program(const std::filesystem::path& folder, pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(folder / "stdout.txt"),
          read_file(folder / "stderr.txt")};
}

inline Outcome run_program(const std::filesystem::path& folder, const std::vector<std::string>& arguments) {
  return finish_program(folder, start_program(folder, arguments));
}

}  // namespace quench::testing
