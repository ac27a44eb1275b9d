// Matrix products: through cuBLASLt, but for those with few rows.

#include "core/ops/gemm.h"

#include <array>
#include <map>
#include <memory>
#include <mutex>

#include "core/cuda/gemm_choices.h"
#include "core/cuda/gemm_contest.h"
#include "core/cuda/gemm_empty.h"
#include "core/cuda/gemv.h"
#include "core/determinism.h"
#include "core/kernel_slot.h"

namespace quench::cuda {
namespace {

constexpr int kCandidates = 16;  // cuBLASLt knows 8 for most problems
// Below this a product takes about as long as its launch, and the order of its algorithms does not matter.
constexpr double kMinFlops = 5e8;

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
    Chosen& chosen = chosen_for(problem, stream.device);
    void* scratch = workspace(stream);
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    do {
      const cublasLtMatmulAlgo_t& algorithm = chosen.contest->begin(native(stream));
      status = chosen.plan->run(handle_, args, args.c.raw_data(), algorithm, scratch, native(stream));
      if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) chosen.contest->failed();
    } while (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE);
    if (status != CUBLAS_STATUS_SUCCESS)
      cublaslt().check(status, fmt::format("gemm {} on {}, stream {}", problem.to_string(), stream.device.to_string(),
                                           stream.handle));
    chosen.contest->end(native(stream));
    if (const auto winner = chosen.contest->take_winner(); winner && !chosen.kept)
      choices_.insert(problem.to_string(), *winner);
  }

 private:
  struct Chosen {
    std::unique_ptr<GemmPlan> plan;
    std::unique_ptr<GemmContest> contest;
    bool kept = false;  // the algorithm is in the file, or not worth keeping
  };

  Chosen& chosen_for(const GemmProblem& problem, Device device) {
    // Outside GemmTuning shapes may come once and never again: a contest would only slow them down.
    const bool contested = GemmTuning::wanted() && !deterministic();
    auto& table = chosen_[contested];
    const auto it = table.find(problem);
    if (it != table.end()) return it->second;
    Chosen chosen{std::make_unique<GemmPlan>(problem), nullptr};
    std::vector<cublasLtMatmulAlgo_t> candidates;
    if (!contested || problem.flops() < kMinFlops) {
      candidates = chosen.plan->candidates(handle_, 1);
      chosen.kept = true;
    } else if (const auto kept = choices_.find(problem.to_string()); kept && chosen.plan->supports(handle_, *kept)) {
      candidates = {*kept};
      chosen.kept = true;
    } else {
      candidates = chosen.plan->candidates(handle_, kCandidates);
    }
    chosen.contest = std::make_unique<GemmContest>(problem, std::move(candidates), device);
    return table.emplace(problem, std::move(chosen)).first->second;
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
  std::array<std::unordered_map<GemmProblem, Chosen, GemmProblemHash>, 2> chosen_;  // [contested]
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
