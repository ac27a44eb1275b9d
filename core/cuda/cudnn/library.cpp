#include "core/cuda/cudnn/library.h"

#include <fmt/core.h>
#include <nvrtc.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/cuda/common/cuda_error.h"
#include "core/device/shared_library.h"

namespace quench::cuda {
namespace {

struct Library {
  std::optional<SharedLibrary> opened;
  std::string missing;
  std::string missing_nvrtc;
};

// 91400 -> 9, 8907 -> 8.
int major_of(std::size_t version) {
  return static_cast<int>(version >= 10000 ? version / 10000 : version / 1000);
}

SharedLibrary open_chosen(const SharedLibraryName& name, const std::string& path) {
  const SharedLibrary opened(name, path);
  decltype(&cudnnGetVersion) get_version = nullptr;
  opened.bind(get_version, "cudnnGetVersion");
  const int major = major_of(get_version());
  QUENCH_CHECK_AS(ErrorCode::unsupported, major == name.major, "{}", other_major_message(name, path, major));
  return opened;
}

// Empty if loaded, else the reason. cuDNN compiles kernels by NVRTC, which it looks for by name alone, as NVRTC does
// for its builtins: outside of the dynamic linker's folders they find what is loaded already.
std::string load_nvrtc() {
  SharedLibraryName name{.product = "NVRTC",
                         .file = "libnvrtc.so",
                         .major = CUDART_VERSION / 1000,
                         .package = fmt::format("the CUDA {} libraries", CUDART_VERSION / 1000),
                         .global = true};
  try {
    const SharedLibrary nvrtc(name);
    decltype(&nvrtcVersion) get_version = nullptr;
    nvrtc.bind(get_version, "nvrtcVersion");
    int major = 0, minor = 0;
    get_version(&major, &minor);
    const std::filesystem::path builtins =
        std::filesystem::path(nvrtc.path()).replace_filename(fmt::format("libnvrtc-builtins.so.{}.{}", major, minor));
    if (std::filesystem::exists(builtins)) (void)SharedLibrary(name, builtins.string());
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

Library open_library() {
  const SharedLibraryName name{.product = "cuDNN",
                               .file = "libcudnn.so",
                               .major = CUDNN_MAJOR,
                               .package = fmt::format("cuDNN {} for CUDA {}", CUDNN_MAJOR, CUDART_VERSION / 1000)};
  const char* chosen = std::getenv("QUENCH_CUDNN_LIBRARY");
  try {
    SharedLibrary opened = chosen != nullptr && *chosen != '\0' ? open_chosen(name, chosen) : SharedLibrary(name);
    return {opened, {}, load_nvrtc()};
  } catch (const Error& error) {
    return {{}, error.what(), {}};
  }
}

const Library& library() {
  static const Library opened = open_library();
  return opened;
}

template <class Function>
Function* find(Function*, const char* name) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, library().opened.has_value(), "{}", library().missing);
  Function* function = nullptr;
  library().opened->bind(function, name);
  return function;
}

}  // namespace

const std::string& cudnn_missing() {
  return library().missing;
}
const std::string& nvrtc_missing() {
  return library().missing_nvrtc;
}

CudnnSession::CudnnSession(Stream stream) {
  struct Slot {
    std::mutex mutex;
    cudnnHandle_t handle = nullptr;
  };
  static std::array<Slot, 16>& slots = *new std::array<Slot, 16>;  // outlives all threads
  const DeviceGuard guard(stream.device);
  Slot& slot = slots.at(static_cast<std::size_t>(stream.device.index));
  lock_ = std::unique_lock(slot.mutex);
  const auto check_status = [&](cudnnStatus_t status, std::string_view what) {
    QUENCH_CHECK_AS(ErrorCode::failed, status == CUDNN_STATUS_SUCCESS, "{} on {}: {}", what, stream.device.to_string(),
                    cudnnGetErrorString(status));
  };
  if (slot.handle == nullptr) check_status(cudnnCreate(&slot.handle), "cudnnCreate");
  check_status(cudnnSetStream(slot.handle, native(stream)), "cudnnSetStream");
  handle_ = slot.handle;
}

}  // namespace quench::cuda

// Not exported by the shared library, where they would stand for cuDNN's and NVRTC's own in the whole process.
#define QUENCH_HIDDEN __attribute__((visibility("hidden")))

// cuDNN symbols of the frontend and this folder, forwarded to the library.
#define QUENCH_CUDNN_FORWARD(result, name, parameters, ...)           \
  QUENCH_HIDDEN result name parameters {                              \
    static auto* const function = ::quench::cuda::find(&name, #name); \
    return function(__VA_ARGS__);                                     \
  }

extern "C" {

QUENCH_CUDNN_FORWARD(std::size_t, cudnnGetVersion, (), )
QUENCH_CUDNN_FORWARD(const char*, cudnnGetErrorString, (cudnnStatus_t status), status)
QUENCH_CUDNN_FORWARD(void, cudnnGetLastErrorString, (char* message, std::size_t size), message, size)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), handle)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), handle, stream)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream), handle, stream)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendCreateDescriptor,
                     (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor), type, descriptor)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), descriptor)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), descriptor)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendSetAttribute,
                     (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, std::int64_t count, const void* values),
                     descriptor, name, type, count, values)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendGetAttribute,
                     (const cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, std::int64_t requested, std::int64_t* count, void* values),
                     descriptor, name, type, requested, count, values)
QUENCH_CUDNN_FORWARD(cudnnStatus_t, cudnnBackendExecute,
                     (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t operands), handle,
                     plan, operands)

// Stubs: graphs here need no NVRTC.
QUENCH_HIDDEN nvrtcResult nvrtcCreateProgram(nvrtcProgram*, const char*, const char*, int, const char* const*,
                                             const char* const*) {
  return NVRTC_ERROR_INVALID_INPUT;
}
QUENCH_HIDDEN nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) {
  return NVRTC_ERROR_INVALID_INPUT;
}
QUENCH_HIDDEN nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) {
  return NVRTC_ERROR_INVALID_INPUT;
}
QUENCH_HIDDEN nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char*) {
  return NVRTC_ERROR_INVALID_INPUT;
}
QUENCH_HIDDEN nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, std::size_t*) {
  return NVRTC_ERROR_INVALID_INPUT;
}
QUENCH_HIDDEN nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char*) {
  return NVRTC_ERROR_INVALID_INPUT;
}
QUENCH_HIDDEN nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t*) {
  return NVRTC_ERROR_INVALID_INPUT;
}

}  // extern "C"
