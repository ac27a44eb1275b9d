#include "core/cuda/gemm/gemm_contest.h"

#include "core/system/log.h"

namespace quench::cuda {
namespace {

// Calls before the contest begins: the first calls of a run find the clocks at rest.
constexpr std::int64_t kWarmUpCalls = 6;

}  // namespace

GemmContest::GemmContest(const GemmProblem& problem, std::vector<cublasLtMatmulAlgo_t> candidates, Device device)
    : problem_(problem), device_(device), candidates_(std::move(candidates)), contest_(candidates_.size()) {}

GemmContest::~GemmContest() {
  release_events();
}

void GemmContest::release_events() {
  for (const Running& call : running_) {
    cudaEventDestroy(call.begin);
    cudaEventDestroy(call.end);
  }
  running_.clear();
  for (const cudaEvent_t event : spare_) cudaEventDestroy(event);
  spare_.clear();
}

cudaEvent_t GemmContest::take_event() {
  cudaEvent_t event = nullptr;
  if (spare_.empty()) {
    check(cudaEventCreate(&event), "cudaEventCreate", device_);
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  return event;
}

const cublasLtMatmulAlgo_t& GemmContest::begin(cudaStream_t stream) {
  open_ = false;
  if (!contest_.decided() && ++calls_ > kWarmUpCalls) {
    collect();
    if (const auto entrant = contest_.next()) {
      current_ = *entrant;
      running_.push_back({current_, take_event(), take_event(), Clock::now()});
      contest_.started(current_);
      open_ = true;
      check(cudaEventRecord(running_.back().begin, stream), "cudaEventRecord", device_);
      return candidates_[current_];
    }
  }
  current_ = contest_.leader();
  return candidates_[current_];
}

void GemmContest::end(cudaStream_t stream) {
  if (!open_) return;
  Running& call = running_.back();
  check(cudaEventRecord(call.end, stream), "cudaEventRecord", device_);
  // Where the device has begun already it may have waited for the host, as long as the host took: the first call of an
  // algorithm loads its kernel.
  if (cudaEventQuery(call.begin) == cudaSuccess)
    call.doubt_ms = std::chrono::duration<float, std::milli>(Clock::now() - call.called).count();
  cudaGetLastError();  // "not ready" is no error of anybody's
  open_ = false;
}

void GemmContest::failed() {
  if (open_) {  // its turn has no time
    spare_.push_back(running_.back().begin);
    spare_.push_back(running_.back().end);
    running_.pop_back();
    open_ = false;
  }
  QUENCH_CHECK_AS(ErrorCode::failed, !contest_.decided(), "gemm: cuBLASLt cannot run {}", problem_.to_string());
  contest_.withdraw(current_);
}

void GemmContest::collect() {
  while (!running_.empty() && !contest_.decided() && cudaEventQuery(running_.front().end) == cudaSuccess) {
    const Running call = running_.front();
    running_.pop_front();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, call.begin, call.end), "cudaEventElapsedTime", device_);
    contest_.finished(call.entrant, ms, call.doubt_ms);
    spare_.push_back(call.begin);
    spare_.push_back(call.end);
  }
  cudaGetLastError();
}

std::optional<cublasLtMatmulAlgo_t> GemmContest::take_winner() {
  if (announced_ || !contest_.decided()) return std::nullopt;
  announced_ = true;
  release_events();
  const std::size_t winner = contest_.leader();
  if (const auto ms = contest_.best_time())
    QUENCH_LOG_DEBUG("gemm {}: {:.3f} ms, {:.0f} TFLOP/s with number {} of {} algorithms, after {} timed calls",
                     problem_.to_string(), *ms, problem_.flops() / static_cast<double>(*ms) * 1e-9, winner + 1,
                     candidates_.size(), contest_.turns());
  return candidates_[winner];
}

}  // namespace quench::cuda
