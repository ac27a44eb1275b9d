// Matrix products: through cuBLASLt, but for those with few rows.

#include "core/ops/gemm.h"

#include <map>
#include <memory>
#include <mutex>

#include "core/cuda/gemm_choices.h"
#include "core/cuda/gemm_empty.h"
#include "core/cuda/gemm_tuner.h"
#include "core/cuda/gemv.h"
#include "core/determinism.h"
#include "core/kernel_slot.h"

namespace quench::cuda {
namespace {

// The library's handle on one device, with what was chosen for each problem.
class DeviceGemm {
 public:
  explicit DeviceGemm(Device device)
      : choices_(gemm_choices_folder(), backend(DeviceType::cuda).device_name(device), cublaslt().get_version()) {
    cublaslt().check(cublaslt().create(&handle_), "cublasLtCreate");
  }

  void run(const GemmArgs& args, Stream stream) {
    const std::lock_guard lock(mutex_);
    const GemmProblem problem = GemmProblem::of(args);
    void* scratch = workspace(stream);
    const auto [it, fresh] = chosen_.try_emplace(problem);
    if (fresh || (!it->second.settled && GemmTuning::wanted())) {
      try {
        choose(it->second, problem, args, scratch, stream);
      } catch (...) {
        chosen_.erase(it);
        throw;
      }
    }
    const auto& [plan, algorithm, settled] = it->second;
    const cublasStatus_t status = plan->run(handle_, args, args.c.raw_data(), algorithm, scratch, native(stream));
    if (status != CUBLAS_STATUS_SUCCESS)
      cublaslt().check(status, fmt::format("gemm {} on {}, stream {}", problem.to_string(), stream.device.to_string(),
                                           stream.handle));
  }

 private:
  struct Chosen {
    std::unique_ptr<GemmPlan> plan;
    cublasLtMatmulAlgo_t algorithm{};
    bool settled = false;  // there is nothing more to try
  };

  // Deterministic runs take what cuBLASLt says, and neither time anything nor read what was timed. Without GemmTuning a
  // product takes what is known of its shape or else what cuBLASLt says, until it is met again under GemmTuning.
  void choose(Chosen& chosen, const GemmProblem& problem, const GemmArgs& args, void* scratch, Stream stream) {
    if (!chosen.plan) chosen.plan = std::make_unique<GemmPlan>(problem);
    const bool timed = !deterministic() && is_worth_timing(problem);
    const std::string key = timed ? problem.to_string() : std::string();
    if (timed) {
      if (const auto kept = choices_.find(key); kept && chosen.plan->supports(handle_, *kept)) {
        chosen.algorithm = *kept;
        chosen.settled = true;
        return;
      }
    }
    chosen.settled = !timed || GemmTuning::wanted();
    if (timed && GemmTuning::wanted()) {
      if (const auto fastest = fastest_gemm_algorithm(handle_, *chosen.plan, args, scratch, stream)) {
        chosen.algorithm = *fastest;
        choices_.insert(key, *fastest);
        return;
      }
    }
    chosen.algorithm = first_gemm_algorithm(handle_, *chosen.plan);
  }

  // One per stream, kept: products on one stream run one after the other.
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
  GemmChoices choices_;
  std::unordered_map<GemmProblem, Chosen, GemmProblemHash> chosen_;
  std::map<void*, Tensor> workspaces_;
};

DeviceGemm& device_gemm(Device device) {
  static std::mutex mutex;
  // Never destroyed: the driver may be gone when statics are.
  static auto& table = *new std::map<int, std::unique_ptr<DeviceGemm>>;
  const std::lock_guard lock(mutex);
  auto& entry = table[device.index];
  if (!entry) entry = std::make_unique<DeviceGemm>(device);
  return *entry;
}

void gemm_cuda(const GemmArgs& args) {
  const Stream stream = current_stream(args.c.device());
  const DeviceGuard guard(stream.device);
  if (args.a.size(args.transpose_a ? 0 : 1) == 0) return gemm_empty(args);
  if (is_gemv(args)) return gemv(args);
  if (args.bias.defined() && args.c.dtype() != args.a.dtype()) {  // cuBLASLt adds biases to results of their dtype only
    GemmArgs product = args, bias = args;
    product.bias = Tensor();
    bias.beta = 1.0f;
    device_gemm(stream.device).run(product, stream);
    return gemm_empty(bias);
  }
  device_gemm(stream.device).run(args, stream);
}

[[maybe_unused]] const bool registered = gemm_slot.fill(DeviceType::cuda, &gemm_cuda);

}  // namespace
}  // namespace quench::cuda
