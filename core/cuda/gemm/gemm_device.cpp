#include "core/cuda/gemm/gemm_device.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "core/cuda/gemm/gemm_algo_cache.h"
#include "core/cuda/gemm/gemm_autotuner.h"
#include "core/cuda/gemm/gemm_panels.h"
#include "core/cuda/gemm/gemm_tile_candidates.h"
#include "core/device/call_counter.h"
#include "core/device/determinism.h"
#include "core/system/log.h"
#include "core/tensor/tensor.h"

namespace quench::cuda {
namespace {

constexpr int kCandidates = 16;  // cuBLASLt usually returns 8
// Launch-bound below this.
constexpr double kMinFlops = 5e8;

CallCounter plans_made("gemm.plans");

class DeviceGemm {
 public:
  explicit DeviceGemm(Device device)
      : choices_(gemm_algo_cache_folder(), backend(DeviceType::cuda).device_name(device), cublaslt().get_version()) {
    cublaslt().check(cublaslt().create(&handle_), "cublasLtCreate");
  }

  bool run(const GemmProblem& problem, const GemmCall& call, Stream stream) {
    const std::lock_guard lock(mutex_);
    void* scratch = workspace(stream);
    Chosen& chosen = chosen_for(problem, call, scratch, stream);
    if (chosen.panels) {
      chosen.panels->run(problem, call, scratch, stream);
      return true;
    }
    if (!chosen.autotuner) return false;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    do {
      const cublasLtMatmulAlgo_t& algorithm = chosen.autotuner->begin(native(stream));
      status = chosen.plan->run(handle_, call, algorithm, scratch, native(stream));
      if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) chosen.autotuner->failed();
    } while (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE);
    if (status != CUBLAS_STATUS_SUCCESS)
      cublaslt().check(status, fmt::format("gemm {} ({}) on {}, stream {}", problem.to_string(),
                                           chosen.plan->describe(), stream.device.to_string(), stream.handle));
    chosen.autotuner->end(native(stream));
    if (const auto winner = chosen.autotuner->take_winner(); winner && !chosen.kept)
      choices_.insert(problem.to_string(), *winner);
    return true;
  }

  bool has_algorithm(const GemmProblem& problem, const GemmCall& call) {
    const std::lock_guard lock(mutex_);
    if (!compiled_for(problem.scales)) return false;
    const GemmPlan plan(problem);
    plan.bind_scales(call);
    return !plan.candidates(handle_, 1).empty();
  }

 private:
  struct Chosen {
    std::unique_ptr<GemmPlan> plan;
    std::unique_ptr<GemmAutotuner> autotuner;  // null: no algorithm
    const GemmPanels* panels = nullptr;        // in place of an algorithm
    bool kept = false;                         // cached, or not worth it
  };

  // Leaves those candidates with the bits of the problem's panels; none: panels it is.
  void keep_invariant(Chosen& chosen, std::vector<cublasLtMatmulAlgo_t>& candidates, bool first_alone,
                      const GemmCall& call, void* scratch, Stream stream) {
    const GemmProblem& problem = chosen.plan->problem();
    const GemmProblem panel = GemmPanels::panel_of(problem);
    const GemmPanels& panels = panels_.try_emplace(panel, panel, call, handle_).first->second;
    if (!panels.defined()) return;
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(native(stream), &capture), "cudaStreamIsCapturing", stream);
    if (capture != cudaStreamCaptureStatusNone) {
      candidates.clear();
    } else {
      bool found = false;
      std::erase_if(candidates, [&](const cublasLtMatmulAlgo_t& algorithm) {
        if (found && first_alone) return true;
        found = chosen.plan->run(handle_, call, algorithm, scratch, native(stream)) == CUBLAS_STATUS_SUCCESS &&
                panels.matches(problem, call, scratch, stream);
        return !found;
      });
    }
    if (!candidates.empty()) return;
    QUENCH_LOG_DEBUG("gemm {}: in panels of rows", problem.to_string());
    chosen.panels = &panels;
  }

  Chosen& chosen_for(const GemmProblem& problem, const GemmCall& call, void* scratch, Stream stream) {
    // Outside GemmTuning, shapes may not recur.
    const bool autotuned = GemmTuning::wanted() && !deterministic();
    auto& table = chosen_[autotuned];
    const auto it = table.find(problem);
    if (it != table.end()) return it->second;
    plans_made.add();
    if (!compiled_for(problem.scales)) return table.emplace(problem, Chosen{}).first->second;
    Chosen chosen{std::make_unique<GemmPlan>(problem), nullptr};
    chosen.plan->bind_scales(call);
    std::vector<cublasLtMatmulAlgo_t> candidates;
    if (!autotuned || problem.flops() < kMinFlops) {
      candidates = chosen.plan->candidates(handle_, problem.unsplit ? kCandidates : 1);
      chosen.kept = true;
    } else if (const auto kept = choices_.find(problem.to_string()); kept && chosen.plan->supports(handle_, *kept)) {
      candidates = {*kept};
      chosen.kept = true;
    } else {
      candidates = chosen.plan->candidates(handle_, kCandidates);
      const auto more = gemm_tile_candidates(*chosen.plan, handle_, candidates);
      candidates.insert(candidates.end(), more.begin(), more.end());
    }
    if (problem.unsplit && !problem.accumulate && !are_blocked(problem.scales))
      keep_invariant(chosen, candidates, chosen.kept, call, scratch, stream);
    if (!candidates.empty())
      chosen.autotuner = std::make_unique<GemmAutotuner>(problem, std::move(candidates), stream.device);
    return table.emplace(problem, std::move(chosen)).first->second;
  }

  // GEMMs of a stream are serialized.
  void* workspace(Stream stream) {
    Tensor& scratch = workspaces_[stream.handle];
    if (!scratch.defined()) {
      const MemoryScope scope(MemoryCategory::workspace);
      scratch = Tensor::empty({static_cast<std::int64_t>(kGemmWorkspaceBytes)}, DType::u8, stream.device);
    }
    return scratch.raw_data();
  }

  std::mutex mutex_;
  cublasLtHandle_t handle_ = nullptr;
  GemmAlgoCache choices_;
  std::array<std::unordered_map<GemmProblem, Chosen, GemmProblemHash>, 2> chosen_;  // [autotuned]
  std::unordered_map<GemmProblem, GemmPanels, GemmProblemHash> panels_;             // by panel
  std::map<void*, Tensor> workspaces_;
};

DeviceGemm& device_gemm(Device device) {
  static std::mutex mutex;
  // Never destroyed: the driver may be unloaded first.
  static auto& table = *new std::map<int, std::unique_ptr<DeviceGemm>>;
  const std::lock_guard lock(mutex);
  auto& entry = table[device.index];
  if (!entry) entry = std::make_unique<DeviceGemm>(device);
  return *entry;
}

}  // namespace

bool has_algorithm(const GemmProblem& problem, const GemmCall& call, Device device) {
  return device_gemm(device).has_algorithm(problem, call);
}

bool run_gemm(const GemmProblem& problem, const GemmCall& call, Stream stream) {
  return device_gemm(stream.device).run(problem, call, stream);
}

}  // namespace quench::cuda
