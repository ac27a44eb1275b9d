// Rewards that a command prints.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <sstream>
#include <system_error>

#include "core/system/check.h"
#include "train/objectives/grpo/grpo_section.h"
#include "train/objectives/grpo/rewards/reward.h"

namespace quench {
namespace {

// A descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

std::string system_text(int error) {
  return std::system_category().message(error);
}

// Anonymous file that holds `text`, at its beginning.
void fill_input(const Descriptor& file, std::string_view text, const std::string& command) {
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    QUENCH_CHECK_AS(ErrorCode::io, written > 0, "grpo.reward_command \"{}\": its input cannot be written: {}", command,
                    system_text(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  (void)::lseek(file.get(), 0, SEEK_SET);
}

class Command {
 public:
  // Starts `command` in a process group of its own.
  Command(const std::string& command, int input) : command_(command) {
    int ends[2];
    QUENCH_CHECK_AS(ErrorCode::io, ::pipe2(ends, O_CLOEXEC) == 0, "grpo.reward_command \"{}\": {}", command,
                    system_text(errno));
    output_.reset(ends[0]);
    const Descriptor written(ends[1]);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, written.get(), STDOUT_FILENO);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes, &signals);
    sigaddset(&signals, SIGPIPE);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    char shell[] = "/bin/sh", option[] = "-c";
    std::string text = command;
    char* arguments[] = {shell, option, text.data(), nullptr};
    const int error = ::posix_spawn(&pid_, shell, &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) pid_ = -1;
    QUENCH_CHECK_AS(ErrorCode::failed, error == 0, "grpo.reward_command \"{}\" cannot be started: {}", command,
                    system_text(error));
  }
  ~Command() {
    if (pid_ < 0) return;
    ::kill(-pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // All that it prints until it ends. Throws failed after `seconds`, and for another exit status than 0.
  [[nodiscard]] std::string output(double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    const auto left = [&] { return std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count(); };
    const auto check_time = [&] {
      QUENCH_CHECK_AS(
          ErrorCode::failed, left() > 0,
          "grpo.reward_command \"{}\" has not ended after {} s (grpo.reward_timeout) and was killed; make it "
          "faster, or raise the limit",
          command_, seconds);
    };
    std::string text;
    char buffer[1 << 14];
    while (true) {
      check_time();
      pollfd wait{output_.get(), POLLIN, 0};
      const int ready = ::poll(&wait, 1, static_cast<int>(std::min<std::int64_t>(left() + 1, 1000)));
      if (ready <= 0) continue;
      const ssize_t count = ::read(output_.get(), buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      text.append(buffer, static_cast<std::size_t>(count));
    }
    int status = 0;
    while (true) {
      const pid_t ended = ::waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) break;
      check_time();
      ::poll(nullptr, 0, 1);
    }
    pid_ = -1;
    QUENCH_CHECK_AS(ErrorCode::failed, WIFEXITED(status), "grpo.reward_command \"{}\" was ended by signal {}", command_,
                    WTERMSIG(status));
    QUENCH_CHECK_AS(ErrorCode::failed, WEXITSTATUS(status) == 0,
                    "grpo.reward_command \"{}\" failed with exit status {}; its messages are above", command_,
                    WEXITSTATUS(status));
    return text;
  }

 private:
  std::string command_;
  Descriptor output_;
  pid_t pid_ = -1;
};

double number_of(std::string_view line, std::size_t at, const std::string& command) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t begin = std::min(line.find_first_not_of(kSpace), line.size());
  line = line.substr(begin, line.find_last_not_of(kSpace) + 1 - begin);
  if (line == "null" || line == "None") return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  const auto [rest, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  QUENCH_CHECK_AS(ErrorCode::corrupt, error == std::errc() && rest == line.data() + line.size() && !std::isinf(value),
                  "grpo.reward_command \"{}\": line {} of its output is {}, expected a number, or null for none",
                  command, at + 1, Json(std::string(line)).dump());
  return value;
}

class CommandReward final : public Reward {
 public:
  CommandReward(std::string command, double timeout) : command_(std::move(command)), timeout_(timeout) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !command_.empty(),
                    "is empty; reward command needs a shell command, such as \"python3 reward.py\"");
  }
  [[nodiscard]] std::vector<double> score(std::span<const RewardSample> samples) const override {
    std::string input;
    for (const RewardSample& sample : samples) input += to_json(sample).dump() + "\n";
    const Descriptor file(::memfd_create("rewards", MFD_CLOEXEC));
    QUENCH_CHECK_AS(ErrorCode::io, file.get() >= 0, "grpo.reward_command \"{}\": {}", command_, system_text(errno));
    fill_input(file, input, command_);
    std::istringstream output(Command(command_, file.get()).output(timeout_));
    std::vector<double> rewards;
    for (std::string line; std::getline(output, line);) rewards.push_back(number_of(line, rewards.size(), command_));
    QUENCH_CHECK_AS(ErrorCode::corrupt, rewards.size() == samples.size(),
                    "grpo.reward_command \"{}\" printed {} lines for {} completions; it has to print a number for each "
                    "line it reads, and nothing else",
                    command_, rewards.size(), samples.size());
    return rewards;
  }

 private:
  std::string command_;
  double timeout_;
};

}  // namespace

std::unique_ptr<Reward> command_reward(const GrpoSection& section) {
  return std::make_unique<CommandReward>(section.reward_command, section.reward_timeout);
}

}  // namespace quench
