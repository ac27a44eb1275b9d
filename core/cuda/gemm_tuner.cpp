#include "core/cuda/gemm_tuner.h"

#include <algorithm>
#include <limits>

#include "core/log.h"

namespace quench::cuda {
namespace {

constexpr int kCandidates = 48;
// Below this a product takes about as long as its launch.
constexpr double kMinFlops = 5e8;
// After one trial of each, the best few are run in turns, each for this long without a pause: a large GPU under load
// runs at its power limit, where the order of algorithms is another than after a rest.
constexpr std::size_t kFinalists = 6;
constexpr int kRounds = 3;
constexpr float kTurnMilliseconds = 15;

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

  // Milliseconds of each of `times` runs of `work`, on average; infinity when it says it failed.
  template <class Work>
  float measure(int times, const Work& work) {
    check(cudaEventRecord(begin_, native(stream_)), "cudaEventRecord", stream_);
    bool ok = true;
    for (int i = 0; ok && i < times; ++i) ok = work();
    check(cudaEventRecord(end_, native(stream_)), "cudaEventRecord", stream_);
    check(cudaEventSynchronize(end_), "matrix product under trial", stream_);
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime", stream_);
    return ok ? ms / static_cast<float>(times) : std::numeric_limits<float>::infinity();
  }

 private:
  Stream stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

struct Trial {
  cublasLtMatmulAlgo_t algorithm;
  int rank;        // in cuBLASLt's order
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

std::vector<cublasLtMatmulAlgo_t> candidates(cublasLtHandle_t handle, const GemmPlan& plan, int most) {
  std::vector<cublasLtMatmulAlgo_t> found = plan.candidates(handle, most);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !found.empty(), "gemm: cuBLASLt has no algorithm for {}",
                  plan.problem().to_string());
  return found;
}

}  // namespace

bool is_worth_timing(const GemmProblem& problem) {
  return problem.flops() >= kMinFlops;
}

cublasLtMatmulAlgo_t first_gemm_algorithm(cublasLtHandle_t handle, const GemmPlan& plan) {
  return candidates(handle, plan, 1).front();
}

std::optional<cublasLtMatmulAlgo_t> fastest_gemm_algorithm(cublasLtHandle_t handle, const GemmPlan& plan,
                                                           const GemmArgs& args, void* workspace, Stream stream) {
  const GemmProblem& problem = plan.problem();
  const auto found = candidates(handle, plan, kCandidates);
  if (found.size() == 1) return found.front();
  const Tensor output = trial_output(args, problem);
  if (!output.defined()) return std::nullopt;

  Timer timer(stream);
  const auto run = [&](Trial& trial, int times) {
    const float ms = timer.measure(times, [&] {
      return plan.run(handle, args, output.raw_data(), trial.algorithm, workspace, native(stream)) ==
             CUBLAS_STATUS_SUCCESS;
    });
    trial.best = std::min(trial.best, ms);
  };
  constexpr float kUntried = std::numeric_limits<float>::infinity();
  std::vector<Trial> trials;
  for (const cublasLtMatmulAlgo_t& algorithm : found)
    trials.push_back({algorithm, static_cast<int>(trials.size()), kUntried});
  run(trials.front(), 1);  // clocks and caches
  for (Trial& trial : trials) run(trial, 1);
  const auto by_time = [](const Trial& a, const Trial& b) { return a.best < b.best; };
  std::ranges::stable_sort(trials, by_time);
  trials.resize(std::min(trials.size(), kFinalists));
  const int times = std::max(1, static_cast<int>(kTurnMilliseconds / trials.front().best));
  for (Trial& trial : trials) trial.best = kUntried;
  for (int round = 0; round < kRounds; ++round)
    for (Trial& trial : trials) run(trial, times);
  const Trial& best = *std::ranges::min_element(trials, by_time);
  const Trial& first = *std::ranges::min_element(trials, {}, &Trial::rank);
  QUENCH_LOG_DEBUG("gemm {}: {:.3f} ms, {:.0f} TFLOP/s, number {} of {} of cuBLASLt's order; number {}: {:.3f} ms",
                   problem.to_string(), best.best, problem.flops() / static_cast<double>(best.best) * 1e-9,
                   best.rank + 1, found.size(), first.rank + 1, first.best);
  return best.algorithm;
}

}  // namespace quench::cuda
