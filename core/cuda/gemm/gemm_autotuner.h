#pragma once
// Online GEMM autotuner: each training call of a problem runs one cuBLASLt candidate, timed with CUDA events, until one
// wins (online_autotuner.h), under the run's data, L2 state and power limit. The host never waits; no output is
// computed twice.

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "core/cuda/gemm/gemm_plan.h"
#include "core/device/online_autotuner.h"

namespace quench::cuda {

class GemmAutotuner {
 public:
  // One or more; the cuBLASLt heuristic's first, in its order.
  GemmAutotuner(const GemmProblem& problem, std::vector<cublasLtMatmulAlgo_t> candidates, Device device);
  ~GemmAutotuner();
  GemmAutotuner(const GemmAutotuner&) = delete;
  GemmAutotuner& operator=(const GemmAutotuner&) = delete;

  // For the call between begin() and end(). failed() drops it.
  [[nodiscard]] const cublasLtMatmulAlgo_t& begin(cudaStream_t stream);
  void end(cudaStream_t stream);
  void failed();

  // Once; else nullopt.
  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> take_winner();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::size_t candidate;
    cudaEvent_t begin, end;
    Clock::time_point called;
    float doubt_ms = 0;  // possible idle time
  };

  void collect();
  void release_events();
  [[nodiscard]] cudaEvent_t take_event();

  GemmProblem problem_;
  Device device_;
  std::vector<cublasLtMatmulAlgo_t> candidates_;
  OnlineAutotuner autotuner_;
  std::deque<Running> running_;  // oldest first
  std::vector<cudaEvent_t> spare_;
  std::int64_t calls_ = 0;
  std::size_t current_ = 0;  // candidate of the open call
  bool open_ = false;        // open call is timed
  bool announced_ = false;
};

}  // namespace quench::cuda
