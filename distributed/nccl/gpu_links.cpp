#include "distributed/gpu_links.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>
#include <utility>

#include "core/cuda/common/cuda_error.h"
#include "core/tensor/tensor.h"
#include "distributed/nccl/nccl_library.h"

namespace quench::distributed {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLinkTimeout = std::chrono::seconds(15);  // per phase
constexpr std::int64_t kElements = 1024;

Device gpu(int index) {
  return {DeviceType::cuda, static_cast<std::int8_t>(index)};
}

// Communicators of one process, non-blocking.
class LocalCommunicators {
 public:
  explicit LocalCommunicators(int gpus) : comms_(static_cast<std::size_t>(gpus)) {
    ncclUniqueId id{};
    check(nccl().get_unique_id(&id), "ncclGetUniqueId");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      group("ncclCommInitRankConfig",
            [&](int i) { return nccl().comm_init_rank_config(&comm(i), gpus, id, i, &config); });
    } catch (...) {
      abort();
      throw;
    }
  }
  ~LocalCommunicators() { abort(); }
  LocalCommunicators(const LocalCommunicators&) = delete;
  LocalCommunicators& operator=(const LocalCommunicators&) = delete;

  [[nodiscard]] int gpus() const { return static_cast<int>(comms_.size()); }
  [[nodiscard]] ncclComm_t& comm(int i) { return comms_[static_cast<std::size_t>(i)]; }

  // One call per GPU, then waits until NCCL has queued them.
  template <class Call>
  void group(const char* what, const Call& call) {
    check(nccl().group_start(), "ncclGroupStart");
    ncclResult_t worst = ncclSuccess;
    for (int i = 0; i < gpus(); ++i) {
      const cuda::DeviceGuard guard(gpu(i));
      const ncclResult_t result = call(i);
      if (result != ncclSuccess && result != ncclInProgress) worst = result;
    }
    const ncclResult_t ended = nccl().group_end();
    check(worst, what);
    check(ended, what);
    const auto end = Clock::now() + kLinkTimeout;
    for (int i = 0; i < gpus();) {
      ncclResult_t state = ncclSuccess;
      check(nccl().comm_get_async_error(comm(i), &state), "ncclCommGetAsyncError");
      check(state, what);
      if (state != ncclInProgress) {
        ++i;
        continue;
      }
      QUENCH_CHECK_AS(ErrorCode::failed, Clock::now() < end, "{}: not done after {} s", what, kLinkTimeout.count());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static void check(ncclResult_t result, const char* what) {
    QUENCH_CHECK_AS(ErrorCode::failed, result == ncclSuccess || result == ncclInProgress, "{}: {} {}", what,
                    nccl().get_error_string(result), nccl().get_last_error(nullptr));
  }

  // Also after success: destruction of communicators of one thread would wait for each other.
  void abort() noexcept {
    for (ncclComm_t& one : comms_)
      if (one != nullptr) nccl().comm_abort(std::exchange(one, nullptr));
  }

  std::vector<ncclComm_t> comms_;
};

void all_reduce_among(int gpus) {
  std::vector<Tensor> inputs, outputs;
  std::vector<Event> done;
  Backend& cuda = backend(DeviceType::cuda);
  for (int i = 0; i < gpus; ++i) {
    const std::vector<float> values(kElements, static_cast<float>(i + 1));
    inputs.push_back(Tensor::from_values<float>({kElements}, values).to(gpu(i)));
    outputs.push_back(Tensor::zeros({kElements}, DType::f32, gpu(i)));
  }
  LocalCommunicators communicators(gpus);
  communicators.group("ncclAllReduce", [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    return nccl().all_reduce(inputs[at].raw_data(), outputs[at].raw_data(), kElements, ncclFloat32, ncclSum,
                             communicators.comm(i), cuda::native(current_stream(gpu(i))));
  });
  const auto end = Clock::now() + kLinkTimeout;
  for (int i = 0; i < gpus; ++i) {
    const Event event = cuda.create_event(gpu(i));
    cuda.record(event, current_stream(gpu(i)));
    while (!cuda.is_done(event)) {
      QUENCH_CHECK_AS(ErrorCode::failed, Clock::now() < end, "an all-reduce among {} GPUs is not done after {} s", gpus,
                      kLinkTimeout.count());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    cuda.destroy_event(event);
    const Tensor sum = outputs[static_cast<std::size_t>(i)].to({});
    cuda.synchronize(current_stream(gpu(i)));
    const float expected = static_cast<float>(gpus * (gpus + 1)) / 2;
    for (std::int64_t k = 0; k < kElements; ++k)
      QUENCH_CHECK_AS(ErrorCode::failed, sum.data<float>()[k] == expected,
                      "an all-reduce among {} GPUs gives {} on GPU {}, expected {}", gpus, sum.data<float>()[k], i,
                      expected);
  }
}

GpuLinks check_links(int gpus) {
  GpuLinks links;
  for (int i = 0; i < gpus; ++i) {
    std::vector<bool>& row = links.peer_access.emplace_back();
    for (int j = 0; j < gpus; ++j) {
      int can = 0;
      row.push_back(i != j && cudaDeviceCanAccessPeer(&can, i, j) == cudaSuccess && can != 0);
    }
  }
  try {
    all_reduce_among(gpus);
  } catch (const Error& error) {
    links.nccl_problem = error.what();
  }
  return links;
}

[[maybe_unused]] const bool links_registered = register_gpu_link_check(check_links);

}  // namespace
}  // namespace quench::distributed
