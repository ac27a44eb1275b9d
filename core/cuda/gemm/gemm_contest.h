#pragma once
// Chooses the algorithm of a matrix product while the product does its work.
//
// cuBLASLt's candidates take turns at the calls of a run, each call timed on its stream, until one has won
// (core/device/timed_contest.h). So they are compared on the run's data, in its caches and at its clocks: a large GPU
// under load runs at its power limit, far below the clocks it has in a trial of its own, and the order of algorithms is
// another there. Nothing waits, no output is written twice, and a run begins at once.

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "core/cuda/gemm/gemm_plan.h"
#include "core/device/timed_contest.h"

namespace quench::cuda {

class GemmContest {
 public:
  // `candidates` as cuBLASLt orders them, what it does not order behind them. With one the contest is decided from the
  // start; there is at least one.
  GemmContest(const GemmProblem& problem, std::vector<cublasLtMatmulAlgo_t> candidates, Device device);
  ~GemmContest();
  GemmContest(const GemmContest&) = delete;
  GemmContest& operator=(const GemmContest&) = delete;

  // The algorithm for the next call, which lies between begin() and end(). A failed call takes its algorithm out.
  [[nodiscard]] const cublasLtMatmulAlgo_t& begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  void failed();

  // The winner, once; nothing before and after.
  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> take_winner();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::size_t entrant;
    cudaEvent_t begin, end;
    Clock::time_point called;
    float doubt_ms = 0;  // of its time, what the device may have waited for the host
  };

  void collect();
  void release_events();
  [[nodiscard]] cudaEvent_t take_event();

  GemmProblem problem_;
  Device device_;
  std::vector<cublasLtMatmulAlgo_t> candidates_;
  TimedContest contest_;
  std::deque<Running> running_;  // calls whose time is not known yet, oldest first
  std::vector<cudaEvent_t> spare_;
  std::int64_t calls_ = 0;
  std::size_t current_ = 0;  // the candidate of the call between begin() and end()
  bool open_ = false;        // that call is timed
  bool announced_ = false;
};

}  // namespace quench::cuda
