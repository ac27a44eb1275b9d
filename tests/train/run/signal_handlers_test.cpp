// Signal handlers of the process before, during and after a run.

#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <vector>

#include "nn/optim/lr_schedule.h"
#include "tests/train/run/trainer_fixture.h"

namespace quench {
namespace {

using testing::TinyRun;

constexpr std::array kSignalsOfRuns = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};

// Handler of each signal.
using Handlers = std::array<void (*)(int), kSignalsOfRuns.size()>;

Handlers current_handlers() {
  Handlers handlers{};
  for (std::size_t i = 0; i < kSignalsOfRuns.size(); ++i) {
    struct sigaction action {};
    EXPECT_EQ(::sigaction(kSignalsOfRuns[i], nullptr, &action), 0);
    handlers[i] = action.sa_handler;
  }
  return handlers;
}

void handler_of_the_process(int) {}

// One for each step's learning rate.
std::vector<Handlers>& seen_handlers() {
  static std::vector<Handlers> seen;
  return seen;
}

// Handlers of the process, none of them default, and a schedule that looks at them in every step. One process for each
// test.
class SignalHandlersOfARun : public ::testing::Test {
 protected:
  SignalHandlersOfARun() {
    static const Registered<LrScheduleEntry> kWatching{
        {"watching", "constant", LrScheduleEntry::Decay::after_warmup, [](double) {
           seen_handlers().push_back(current_handlers());
           return 1.0;
         }}};
    for (const int signal : kSignalsOfRuns) {
      struct sigaction action {};
      action.sa_handler = handler_of_the_process;
      ::sigemptyset(&action.sa_mask);
      EXPECT_EQ(::sigaction(signal, &action, nullptr), 0);
    }
    seen_handlers().clear();
  }

  TrainResult run(bool handle_signals) const {
    Trainer trainer(tiny_.config("run", {"--training.steps=6", "--lr_schedule.name=watching"}), {}, -1);
    seen_handlers().clear();
    return trainer.run(handle_signals);
  }

  TinyRun tiny_;
};

TEST_F(SignalHandlersOfARun, AreThoseOfTheProcessWithoutHandleSignals) {
  const Handlers before = current_handlers();
  EXPECT_EQ(run(false).step, 6);
  ASSERT_GE(seen_handlers().size(), 6u);
  for (const Handlers& during : seen_handlers()) EXPECT_EQ(during, before);
  EXPECT_EQ(current_handlers(), before);
}

TEST_F(SignalHandlersOfARun, AreTheTrainersUntilItReturns) {
  const Handlers before = current_handlers();
  EXPECT_EQ(run(true).step, 6);
  ASSERT_GE(seen_handlers().size(), 6u);
  for (const Handlers& during : seen_handlers())
    for (std::size_t i = 0; i < kSignalsOfRuns.size(); ++i) EXPECT_NE(during[i], before[i]) << kSignalsOfRuns[i];
  EXPECT_EQ(current_handlers(), before);
}

}  // namespace
}  // namespace quench
