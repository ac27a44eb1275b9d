#include "core/cuda/gemm/gemm_autotuner.h"

#include "core/system/log.h"

namespace quench::cuda {
namespace {

// Before the first trial: idle clocks ramp up.
constexpr std::int64_t kWarmUpCalls = 6;

}  // namespace

GemmAutotuner::GemmAutotuner(const GemmProblem& problem, std::vector<cublasLtMatmulAlgo_t> candidates, Device device)
    : problem_(problem), device_(device), candidates_(std::move(candidates)), autotuner_(candidates_.size()) {}

GemmAutotuner::~GemmAutotuner() {
  release_events();
}

void GemmAutotuner::release_events() {
  for (const Running& call : running_) {
    cudaEventDestroy(call.begin);
    cudaEventDestroy(call.end);
  }
  running_.clear();
  for (const cudaEvent_t event : spare_) cudaEventDestroy(event);
  spare_.clear();
}

cudaEvent_t GemmAutotuner::take_event() {
  cudaEvent_t event = nullptr;
  if (spare_.empty()) {
    check(cudaEventCreate(&event), "cudaEventCreate", device_);
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  return event;
}

const cublasLtMatmulAlgo_t& GemmAutotuner::begin(cudaStream_t stream) {
  open_ = false;
  if (!autotuner_.decided() && ++calls_ > kWarmUpCalls) {
    collect();
    if (const auto candidate = autotuner_.next()) {
      current_ = *candidate;
      running_.push_back({current_, take_event(), take_event(), Clock::now()});
      autotuner_.started(current_);
      open_ = true;
      check(cudaEventRecord(running_.back().begin, stream), "cudaEventRecord", device_);
      return candidates_[current_];
    }
  }
  current_ = autotuner_.leader();
  return candidates_[current_];
}

void GemmAutotuner::end(cudaStream_t stream) {
  if (!open_) return;
  Running& call = running_.back();
  check(cudaEventRecord(call.end, stream), "cudaEventRecord", device_);
  // A completed first event: the GPU may have idled for this call's host time (an algorithm's first call loads its
  // kernel).
  if (cudaEventQuery(call.begin) == cudaSuccess)
    call.doubt_ms = std::chrono::duration<float, std::milli>(Clock::now() - call.called).count();
  cudaGetLastError();  // clears cudaErrorNotReady
  open_ = false;
}

void GemmAutotuner::failed() {
  if (open_) {  // trial without a time
    spare_.push_back(running_.back().begin);
    spare_.push_back(running_.back().end);
    running_.pop_back();
    open_ = false;
  }
  QUENCH_CHECK_AS(ErrorCode::failed, !autotuner_.decided(), "gemm: cuBLASLt cannot run {}", problem_.to_string());
  autotuner_.withdraw(current_);
}

void GemmAutotuner::collect() {
  while (!running_.empty() && !autotuner_.decided() && cudaEventQuery(running_.front().end) == cudaSuccess) {
    const Running call = running_.front();
    running_.pop_front();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, call.begin, call.end), "cudaEventElapsedTime", device_);
    autotuner_.finished(call.candidate, ms, call.doubt_ms);
    spare_.push_back(call.begin);
    spare_.push_back(call.end);
  }
  cudaGetLastError();
}

std::optional<cublasLtMatmulAlgo_t> GemmAutotuner::take_winner() {
  if (announced_ || !autotuner_.decided()) return std::nullopt;
  announced_ = true;
  release_events();
  const std::size_t winner = autotuner_.leader();
  if (const auto ms = autotuner_.best_time())
    QUENCH_LOG_DEBUG("gemm {}: {:.3f} ms, {:.0f} TFLOP/s with number {} of {} algorithms, after {} timed calls",
                     problem_.to_string(), *ms, problem_.flops() / static_cast<double>(*ms) * 1e-9, winner + 1,
                     candidates_.size(), autotuner_.trials());
  return candidates_[winner];
}

}  // namespace quench::cuda
