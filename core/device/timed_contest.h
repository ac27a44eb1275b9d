#pragma once
// Which of several ways to do the same work is the fastest, by the times of turns they take at the work itself.
//
// A way that is far behind leaves after its first turn, one that is close is compared more often: what a contest costs
// is then little more than a turn of each. The decisions alone: no clock and no device is asked here.

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

  // Who takes the next timed turn: the first of those with the fewest. Nobody while times of turns are awaited that may
  // change who is left, and after the decision: the leader does the work then.
  [[nodiscard]] std::optional<std::size_t> next() const;
  // The fastest as far as is known, the first in order while nothing is; in the end the winner.
  [[nodiscard]] std::size_t leader() const;
  [[nodiscard]] bool decided() const;

  // A turn is on its way. Several may be, and end in any order.
  void started(std::size_t entrant);
  // It took between `time - doubt` and `time`, in any unit; what is mostly in doubt takes nobody out by itself. Nothing
  // happens if the entrant has left meanwhile.
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
