#pragma once
// Online autotuning of equivalent algorithms from timings of the work itself.
//
// Candidates clearly slower than the leader are dropped after one trial; close ones are compared by the median of up to
// kTrials. Reads no clock and no device.

#include <cstddef>
#include <optional>
#include <vector>

namespace quench {

class OnlineAutotuner {
 public:
  static constexpr std::size_t kTrials = 9;

  // Numbered by expected merit. A single candidate is decided at once.
  explicit OnlineAutotuner(std::size_t candidates);

  // For the next timed trial: the first with the fewest trials. None once decided, and while outstanding times may drop
  // candidates; then run leader() untimed.
  [[nodiscard]] std::optional<std::size_t> next() const;
  // Fastest so far, 0 at first; the winner once decided.
  [[nodiscard]] std::size_t leader() const;
  [[nodiscard]] bool decided() const;

  // Several trials may be in flight and finish in any order.
  void started(std::size_t candidate);
  // Time in [time - doubt, time], any unit; ignored for dropped candidates. A doubt above a quarter of the time drops
  // none.
  void finished(std::size_t candidate, float time, float doubt = 0.0f);
  // Drops a failed candidate. Precondition: another remains.
  void withdraw(std::size_t candidate);

  [[nodiscard]] std::size_t trials() const noexcept { return trials_; }
  [[nodiscard]] std::size_t remaining() const;
  // The leader's median.
  [[nodiscard]] std::optional<float> best_time() const;

 private:
  struct Candidate {
    std::vector<float> times;
    std::size_t certain = 0;  // times with little doubt
    float least = 0;          // smallest time - doubt of certain times
    std::size_t running = 0;  // in flight
    bool out = false;
    [[nodiscard]] float median() const;
  };

  void drop_slow();
  void end_if_done();

  std::vector<Candidate> candidates_;
  std::size_t trials_ = 0;
};

}  // namespace quench
