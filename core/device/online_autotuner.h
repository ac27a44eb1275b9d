#pragma once
// Online autotuning: decides which of several equivalent algorithms runs next and which one is fastest, from timings of
// the work itself.
//
// A candidate clearly slower than the leader is dropped after its first trial; close ones are compared by the median of
// up to kTrials. The class reads no clock and uses no device.

#include <cstddef>
#include <optional>
#include <vector>

namespace quench {

class OnlineAutotuner {
 public:
  // Trials after which the smallest median wins.
  static constexpr std::size_t kTrials = 9;

  // Candidates are numbered from 0, in the order of expected merit. One candidate is decided from the start.
  explicit OnlineAutotuner(std::size_t candidates);

  // Candidate of the next timed trial: the first with the fewest trials. None once decided, and while outstanding times
  // may still drop candidates; run leader() untimed then.
  [[nodiscard]] std::optional<std::size_t> next() const;
  // Fastest candidate so far; 0 before the first time; the winner once decided.
  [[nodiscard]] std::size_t leader() const;
  [[nodiscard]] bool decided() const;

  // A trial has started. Several may be in flight and finish in any order.
  void started(std::size_t candidate);
  // A trial took between `time - doubt` and `time`, in any unit. A time with a doubt above a quarter of it drops no
  // candidate by itself. No effect on a candidate that has been dropped.
  void finished(std::size_t candidate, float time, float doubt = 0.0f);
  // Drops a candidate that failed. Precondition: another one remains.
  void withdraw(std::size_t candidate);

  // Timed trials so far; candidates not dropped.
  [[nodiscard]] std::size_t trials() const noexcept { return trials_; }
  [[nodiscard]] std::size_t remaining() const;
  // The leader's median; nothing before its first time.
  [[nodiscard]] std::optional<float> best_time() const;

 private:
  struct Candidate {
    std::vector<float> times;
    std::size_t certain = 0;  // times with little doubt
    float least = 0;          // smallest time - doubt of those
    std::size_t running = 0;  // trials in flight
    bool out = false;
    [[nodiscard]] float median() const;
  };

  void drop_slow();
  void end_if_done();

  std::vector<Candidate> candidates_;
  std::size_t trials_ = 0;
};

}  // namespace quench
