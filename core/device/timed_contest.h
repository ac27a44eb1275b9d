#pragma once
// Finds the fastest of several algorithms for the same work, which take turns at the work itself and are timed.
//
// An algorithm that is far behind leaves after its first turn; close ones are compared more often. A contest thus costs
// little more than one turn of each. This class only decides: it reads no clock and uses no device.

#include <cstddef>
#include <optional>
#include <vector>

namespace quench {

class TimedContest {
 public:
  // Turns after which the smallest median wins.
  static constexpr std::size_t kTurns = 9;

  // Entrants are numbered from 0, the one expected to win first. With one the contest is decided.
  explicit TimedContest(std::size_t entrants);

  // The entrant of the next timed turn: the first of those with the fewest turns. None after the decision, and while
  // awaited times may still take entrants out: the leader does the work then.
  [[nodiscard]] std::optional<std::size_t> next() const;
  // The fastest so far; before the first time, entrant 0; in the end the winner.
  [[nodiscard]] std::size_t leader() const;
  [[nodiscard]] bool decided() const;

  // A turn has started. Several may run at once and end in any order.
  void started(std::size_t entrant);
  // A turn took between `time - doubt` and `time`, in any unit. A time with more doubt than certainty takes no entrant
  // out by itself. No effect if the entrant has left meanwhile.
  void finished(std::size_t entrant, float time, float doubt = 0.0f);
  // The entrant cannot do the work. At least one other must be left.
  void withdraw(std::size_t entrant);

  // Timed turns so far, and entrants that are left.
  [[nodiscard]] std::size_t turns() const noexcept { return turns_; }
  [[nodiscard]] std::size_t remaining() const;
  // The leader's median; nothing before its first time.
  [[nodiscard]] std::optional<float> best_time() const;

 private:
  struct Entrant {
    std::vector<float> times;
    std::size_t certain = 0;  // times with little doubt,
    float least = 0;          // and the smallest time - doubt of those
    std::size_t running = 0;  // turns on their way
    bool out = false;
    [[nodiscard]] float median() const;
  };

  void drop_slow();
  void end_if_done();

  std::vector<Entrant> entrants_;
  std::size_t turns_ = 0;
};

}  // namespace quench
