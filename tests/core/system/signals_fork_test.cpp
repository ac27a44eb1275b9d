#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>

#include "core/ops/gemm.h"
#include "core/system/check.h"
#include "core/system/signals.h"
#include "core/system/threads.h"

namespace quench {
namespace {

// A child that says over a pipe when its handlers stand and runs `body`, whose result is its exit status.
class Child {
 public:
  explicit Child(const std::function<int(SignalHandlers&)>& body) {
    int ends[2];
    if (::pipe(ends) != 0) ADD_FAILURE() << "pipe";
    pid_ = ::fork();
    if (pid_ == 0) {
      ::alarm(20);  // a child that waits in vain must not outlive the test
      SignalHandlers handlers;
      (void)!::write(ends[1], "r", 1);
      ::_exit(body(handlers));
    }
    ::close(ends[1]);
    char ready = 0;
    EXPECT_EQ(::read(ends[0], &ready, 1), 1);
    ::close(ends[0]);
  }

  void send(int signal) const { EXPECT_EQ(::kill(pid_, signal), 0); }
  [[nodiscard]] int wait() const {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

void sleep_ms(int milliseconds) {
  ::usleep(static_cast<useconds_t>(milliseconds) * 1000);
}

// The loop of a trainer: steps until asked to stop, then exits as the program does.
int train_until_stopped(SignalHandlers& handlers) {
  while (handlers.stop_signal() == 0) sleep_ms(1);
  return exit_status_of_signal(handlers.stop_signal());
}

// Products over and over: 7 where one of them is not as the first was.
int multiply_until_stopped(SignalHandlers& handlers) {
  set_thread_count(1);
  const Tensor x = Tensor::empty({16, 256}, DType::f32), weight = Tensor::empty({1024, 256}, DType::f32);
  for (const Tensor& tensor : {x, weight})
    for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<float>()[i] = static_cast<float>(i % 13);
  const Tensor first = Tensor::empty({16, 1024}, DType::f32), again = Tensor::empty_like(first);
  gemm({.a = x, .b = weight, .c = first, .transpose_b = true});
  while (handlers.stop_signal() == 0) {
    gemm({.a = x, .b = weight, .c = again, .transpose_b = true});
    if (std::memcmp(again.raw_data(), first.raw_data(), first.nbytes()) != 0) return 7;
  }
  return 0;
}

// Kernels of oneDNN use the stack pointer for something else: a handler that ran there overwrote memory.
TEST(SignalsFork, ASignalInTheMiddleOfAProductHarmsNothing) {
  const Child child(multiply_until_stopped);
  for (int i = 0; i < 3000; ++i) {
    child.send(SIGUSR1);
    ::usleep(200);
  }
  child.send(SIGTERM);
  const int result = child.wait();
  ASSERT_TRUE(WIFEXITED(result)) << "signal " << WTERMSIG(result);
  EXPECT_EQ(WEXITSTATUS(result), 0);
}

TEST(SignalsFork, SigtermStopsWith143SigintWith130AndSighupWith129) {
  for (const auto& [signal, status] : {std::pair{SIGTERM, 143}, {SIGINT, 130}, {SIGHUP, 129}}) {
    const Child child(train_until_stopped);
    child.send(signal);
    const int result = child.wait();
    ASSERT_TRUE(WIFEXITED(result));
    EXPECT_EQ(WEXITSTATUS(result), status);
  }
}

TEST(SignalsFork, TheSecondStopSignalEndsTheProcessAtOnce) {
  // Never looks at its flags, as a step that hangs.
  const Child child([](SignalHandlers&) {
    while (true) sleep_ms(1000);
    return 0;
  });
  child.send(SIGTERM);
  sleep_ms(kSecondStopSeconds * 1000 + 50);
  child.send(SIGINT);
  const int result = child.wait();
  ASSERT_TRUE(WIFEXITED(result));
  EXPECT_EQ(WEXITSTATUS(result), 130);
}

// As timeout(1) sends them, to the process and to its group.
TEST(SignalsFork, SignalsWithinASecondAreOneRequest) {
  const Child child([](SignalHandlers& handlers) {
    while (handlers.stop_signal() == 0) sleep_ms(1);
    sleep_ms(300);  // the step is finished and the state is saved
    return 7;
  });
  for (const int signal : {SIGTERM, SIGTERM, SIGHUP, SIGINT}) child.send(signal);
  sleep_ms(100);
  child.send(SIGTERM);
  const int result = child.wait();
  ASSERT_TRUE(WIFEXITED(result));
  EXPECT_EQ(WEXITSTATUS(result), 7);
}

TEST(SignalsFork, NohupKeepsTheRunAlive) {
  std::signal(SIGHUP, SIG_IGN);
  const Child child(train_until_stopped);
  std::signal(SIGHUP, SIG_DFL);
  child.send(SIGHUP);
  sleep_ms(50);
  child.send(SIGTERM);
  EXPECT_EQ(WEXITSTATUS(child.wait()), 143);
}

TEST(SignalsFork, TheFirstSignalDecidesTheExitStatus) {
  const Child child([](SignalHandlers& handlers) {
    while (handlers.stop_signal() == 0) sleep_ms(1);
    return handlers.stop_signal();
  });
  child.send(SIGTERM);
  EXPECT_EQ(WEXITSTATUS(child.wait()), SIGTERM);
}

TEST(SignalsFork, SigusrAsksForASaveOnceAndTrainingGoesOn) {
  const Child child([](SignalHandlers& handlers) {
    while (!handlers.take_save_request()) sleep_ms(1);
    const bool again = handlers.take_save_request();
    return !again && handlers.stop_signal() == 0 ? 7 : 1;
  });
  child.send(SIGUSR1);
  EXPECT_EQ(WEXITSTATUS(child.wait()), 7);
}

TEST(SignalsFork, ABrokenPipeIsAnErrorAndNotADeath) {
  const Child child([](SignalHandlers&) {
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    ::close(ends[0]);
    return ::write(ends[1], "x", 1) < 0 && errno == EPIPE ? 9 : 2;
  });
  EXPECT_EQ(WEXITSTATUS(child.wait()), 9);
}

TEST(SignalsFork, AnInheritedIgnoreDoesNotKeepTheRunAlive) {
  std::signal(SIGINT, SIG_IGN);
  const Child child(train_until_stopped);
  std::signal(SIGINT, SIG_DFL);
  child.send(SIGINT);
  EXPECT_EQ(WEXITSTATUS(child.wait()), 130);
}

TEST(SignalsFork, DefaultsAreBackAfterwards) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    { SignalHandlers handlers; }
    ::raise(SIGTERM);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(SignalHandlers, PreviousHandlersAreRestored) {
  struct sigaction mine {};
  mine.sa_handler = [](int) {};
  struct sigaction saved {};
  ASSERT_EQ(::sigaction(SIGUSR1, &mine, &saved), 0);
  { SignalHandlers handlers; }
  struct sigaction now {};
  ASSERT_EQ(::sigaction(SIGUSR1, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, mine.sa_handler);
  ::sigaction(SIGUSR1, &saved, nullptr);
}

TEST(SignalHandlers, OneAtATime) {
  {
    SignalHandlers handlers;
    EXPECT_THROW(SignalHandlers(), Error);
    ::raise(SIGUSR1);
    EXPECT_TRUE(handlers.take_save_request());
  }
  // A new object starts with clear flags.
  SignalHandlers again;
  EXPECT_FALSE(again.take_save_request());
  EXPECT_EQ(again.stop_signal(), 0);
}

}  // namespace
}  // namespace quench
