#include "core/cuda/gemm_tuner.h"

#include <algorithm>
#include <limits>

#include "core/determinism.h"
#include "core/log.h"

namespace quench::cuda {
namespace {

constexpr int kCandidates = 24;
// Below this a product takes about as long as its launch.
constexpr double kMinFlops = 5e8;
// After one trial of each, the best few are tried again in turns, so that drifting clocks touch all alike.
constexpr std::size_t kFinalists = 5;
constexpr int kRounds = 5;

class Timer {
 public:
  explicit Timer(Stream stream) : stream_(stream) {
    check(cudaEventCreate(&begin_), "cudaEventCreate", stream);
    check(cudaEventCreate(&end_), "cudaEventCreate", stream);
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Milliseconds of what `work` queues; infinity when it says it failed.
  template <class Work>
  float measure(const Work& work) {
    check(cudaEventRecord(begin_, native(stream_)), "cudaEventRecord", stream_);
    const bool ok = work();
    check(cudaEventRecord(end_, native(stream_)), "cudaEventRecord", stream_);
    check(cudaEventSynchronize(end_), "matrix product under trial", stream_);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime", stream_);
    return ok ? ms : std::numeric_limits<float>::infinity();
  }

 private:
  Stream stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Trial {
  cublasLtMatmulAlgo_t algorithm;
  float best = 0;  // milliseconds
};

// Where trials may write: c itself when they only overwrite it.
Tensor trial_output(const GemmArgs& args, const GemmProblem& problem) {
  if (!problem.accumulate) return args.c;
  try {
    const MemoryScope scope(MemoryCategory::workspace);
    return Tensor::empty({problem.m, problem.ldc}, problem.result, args.c.device());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    return {};
  }
}

}  // namespace

cublasLtMatmulAlgo_t choose_gemm_algorithm(cublasLtHandle_t handle, const GemmPlan& plan, const GemmArgs& args,
                                           void* workspace, Stream stream) {
  const GemmProblem& problem = plan.problem();
  const bool timed = !deterministic() && problem.flops() >= kMinFlops;
  const auto found = plan.candidates(handle, timed ? kCandidates : 1);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !found.empty(), "gemm: cuBLASLt has no algorithm for {}",
                  problem.to_string());
  if (!timed || found.size() == 1) return found.front();
  const Tensor output = trial_output(args, problem);
  if (!output.defined()) return found.front();

  Timer timer(stream);
  const auto run = [&](Trial& trial) {
    const float ms = timer.measure([&] {
      return plan.run(handle, args, output.raw_data(), trial.algorithm, workspace, native(stream)) ==
             CUBLAS_STATUS_SUCCESS;
    });
    trial.best = std::min(trial.best, ms);
  };
  std::vector<Trial> trials;
  for (const cublasLtMatmulAlgo_t& algorithm : found)
    trials.push_back({algorithm, std::numeric_limits<float>::infinity()});
  run(trials.front());  // clocks and caches
  for (Trial& trial : trials) run(trial);
  const float first = trials.front().best;
  const auto by_time = [](const Trial& a, const Trial& b) { return a.best < b.best; };
  std::ranges::stable_sort(trials, by_time);
  trials.resize(std::min(trials.size(), kFinalists));
  for (Trial& trial : trials) trial.best = std::numeric_limits<float>::infinity();
  for (int round = 0; round < kRounds; ++round)
    for (Trial& trial : trials) run(trial);
  const Trial& best = *std::ranges::min_element(trials, by_time);
  QUENCH_LOG_DEBUG("gemm {}: {:.3f} ms, {:.0f} TFLOP/s; cuBLASLt's first choice {:.3f} ms", problem.to_string(),
                   best.best, problem.flops() / static_cast<double>(best.best) * 1e-9, first);
  return best.algorithm;
}

}  // namespace quench::cuda
