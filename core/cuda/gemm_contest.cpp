#include "core/cuda/gemm_contest.h"

#include <algorithm>

#include "core/log.h"

namespace quench::cuda {
namespace {

// Calls before the contest begins: the first steps of a run build plans and find the clocks at rest.
constexpr std::int64_t kWarmUpCalls = 12;
// Turns after which an entrant this much slower than the best is out, and turns of the others before the decision.
constexpr std::size_t kTrialTurns = 3;
constexpr float kHopeless = 1.04f;
constexpr std::size_t kTurns = 9;
// Calls in flight whose times are awaited; beyond, calls go untimed.
constexpr std::size_t kMaxRunning = 64;

}  // namespace

float GemmContest::Entrant::median() const {
  std::vector<float> sorted = times;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

GemmContest::GemmContest(const GemmProblem& problem, std::vector<cublasLtMatmulAlgo_t> candidates, Device device)
    : problem_(problem), device_(device) {
  QUENCH_CHECK(!candidates.empty(), "gemm: a contest without candidates for {}", problem.to_string());
  for (const cublasLtMatmulAlgo_t& algorithm : candidates)
    entrants_.push_back({algorithm, static_cast<int>(entrants_.size()) + 1, {}});
}

GemmContest::~GemmContest() {
  for (const Running& call : running_) {
    cudaEventDestroy(call.begin);
    cudaEventDestroy(call.end);
  }
  for (const cudaEvent_t event : spare_) cudaEventDestroy(event);
}

std::size_t GemmContest::next() const {
  // The one with the fewest turns, counting those in flight.
  std::size_t best = 0, fewest = SIZE_MAX;
  for (std::size_t i = 0; i < entrants_.size(); ++i) {
    std::size_t turns = entrants_[i].times.size();
    for (const Running& call : running_) turns += call.entrant == i ? 1 : 0;
    if (turns < fewest) {
      fewest = turns;
      best = i;
    }
  }
  return best;
}

const cublasLtMatmulAlgo_t& GemmContest::begin(cudaStream_t stream) {
  open_ = false;
  if (entrants_.size() == 1 || ++calls_ <= kWarmUpCalls) return entrants_.front().algorithm;
  collect();
  if (entrants_.size() == 1 || running_.size() >= kMaxRunning) return entrants_.front().algorithm;
  while (spare_.size() < 2) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate", device_);
    spare_.push_back(event);
  }
  Running call{next(), spare_[spare_.size() - 1], spare_[spare_.size() - 2]};
  spare_.resize(spare_.size() - 2);
  running_.push_back(call);
  open_ = true;
  check(cudaEventRecord(call.begin, stream), "cudaEventRecord", device_);
  return entrants_[call.entrant].algorithm;
}

void GemmContest::end(cudaStream_t stream) {
  if (open_) check(cudaEventRecord(running_.back().end, stream), "cudaEventRecord", device_);
  open_ = false;
}

void GemmContest::failed() {
  const std::size_t loser = open_ ? running_.back().entrant : 0;
  if (open_) {
    spare_.push_back(running_.back().begin);
    spare_.push_back(running_.back().end);
    running_.pop_back();
    open_ = false;
  }
  QUENCH_CHECK_AS(ErrorCode::failed, entrants_.size() > 1, "gemm: cuBLASLt cannot run {}", problem_.to_string());
  std::erase_if(running_, [&](const Running& call) {
    if (call.entrant != loser) return false;
    spare_.push_back(call.begin);
    spare_.push_back(call.end);
    return true;
  });
  for (Running& call : running_) call.entrant -= call.entrant > loser ? 1 : 0;
  entrants_.erase(entrants_.begin() + static_cast<std::ptrdiff_t>(loser));
}

void GemmContest::collect() {
  while (!running_.empty() && cudaEventQuery(running_.front().end) == cudaSuccess) {
    const Running call = running_.front();
    running_.pop_front();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, call.begin, call.end), "cudaEventElapsedTime", device_);
    entrants_[call.entrant].times.push_back(ms);
    spare_.push_back(call.begin);
    spare_.push_back(call.end);
  }
  cudaGetLastError();  // "not ready" is no error of anybody's
  if (running_.empty()) drop_slow();
}

void GemmContest::drop_slow() {
  const auto least = std::ranges::min(entrants_, {}, [](const Entrant& e) { return e.times.size(); }).times.size();
  if (least < kTrialTurns) return;
  const auto best = std::ranges::min_element(entrants_, {}, &Entrant::median);
  if (least >= kTurns) {
    QUENCH_LOG_DEBUG("gemm {}: {:.3f} ms, {:.0f} TFLOP/s with number {} of cuBLASLt's order", problem_.to_string(),
                     best->median(), problem_.flops() / static_cast<double>(best->median()) * 1e-9, best->rank);
    entrants_ = {*best};
    return;
  }
  const float limit = best->median() * kHopeless;
  std::erase_if(entrants_, [limit](const Entrant& e) { return e.median() > limit; });
}

std::optional<cublasLtMatmulAlgo_t> GemmContest::take_winner() {
  if (announced_ || entrants_.size() != 1) return std::nullopt;
  announced_ = true;
  return entrants_.front().algorithm;
}

}  // namespace quench::cuda
