#pragma once
// GEMM autotuning during training: the cuBLASLt candidates of a problem run in turn as the calls of the run itself,
// each timed with CUDA events, until one has won (core/device/online_autotuner.h).
//
// Timings thus include the run's data, L2 state and clocks. A GPU under sustained load is power-limited and ranks
// algorithms differently from an isolated trial. The host never waits for a timing; no output is computed twice.

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "core/cuda/gemm/gemm_plan.h"
#include "core/device/online_autotuner.h"

namespace quench::cuda {

class GemmAutotuner {
 public:
  // `candidates`: at least one; those of the cuBLASLt heuristic first, in its order.
  GemmAutotuner(const GemmProblem& problem, std::vector<cublasLtMatmulAlgo_t> candidates, Device device);
  ~GemmAutotuner();
  GemmAutotuner(const GemmAutotuner&) = delete;
  GemmAutotuner& operator=(const GemmAutotuner&) = delete;

  // Algorithm of the next call, which is issued between begin() and end(). failed() drops the algorithm of the call.
  [[nodiscard]] const cublasLtMatmulAlgo_t& begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  void failed();

  // The winner, once; nothing before and after.
  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> take_winner();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::size_t candidate;
    cudaEvent_t begin, end;
    Clock::time_point called;
    float doubt_ms = 0;  // part of the time in which the device may have been idle
  };

  void collect();
  void release_events();
  [[nodiscard]] cudaEvent_t take_event();

  GemmProblem problem_;
  Device device_;
  std::vector<cublasLtMatmulAlgo_t> candidates_;
  OnlineAutotuner autotuner_;
  std::deque<Running> running_;  // calls with an outstanding time, oldest first
  std::vector<cudaEvent_t> spare_;
  std::int64_t calls_ = 0;
  std::size_t current_ = 0;  // the candidate of the call between begin() and end()
  bool open_ = false;        // that call is timed
  bool announced_ = false;
};

}  // namespace quench::cuda
