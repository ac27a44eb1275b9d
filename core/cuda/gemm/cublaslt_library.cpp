#include "core/cuda/gemm/cublaslt_library.h"

#include <fmt/core.h>

#include "core/device/shared_library.h"
#include "core/system/check.h"

namespace quench::cuda {
namespace {

CublasLtLibrary load() {
  const SharedLibrary library({.product = "cuBLASLt",
                               .file = "libcublasLt.so",
                               .major = CUBLAS_VER_MAJOR,
                               .package = fmt::format("the CUDA {} libraries", CUBLAS_VER_MAJOR),
                               .global = true});
  CublasLtLibrary f{};
  library.bind(f.create, "cublasLtCreate");
  library.bind(f.get_version, "cublasLtGetVersion");
  library.bind(f.get_status_string, "cublasLtGetStatusString");
  library.bind(f.matmul, "cublasLtMatmul");
  library.bind(f.matmul_algo_check, "cublasLtMatmulAlgoCheck");
  library.bind(f.matmul_algo_config_get_attribute, "cublasLtMatmulAlgoConfigGetAttribute");
  library.bind(f.matmul_algo_config_set_attribute, "cublasLtMatmulAlgoConfigSetAttribute");
  library.bind(f.matmul_algo_get_heuristic, "cublasLtMatmulAlgoGetHeuristic");
  library.bind(f.matmul_algo_init, "cublasLtMatmulAlgoInit");
  library.bind(f.matmul_desc_create, "cublasLtMatmulDescCreate");
  library.bind(f.matmul_desc_set_attribute, "cublasLtMatmulDescSetAttribute");
  library.bind(f.matmul_desc_get_attribute, "cublasLtMatmulDescGetAttribute");
  library.bind(f.matrix_layout_create, "cublasLtMatrixLayoutCreate");
  library.bind(f.matrix_layout_get_attribute, "cublasLtMatrixLayoutGetAttribute");
  library.bind(f.matmul_preference_create, "cublasLtMatmulPreferenceCreate");
  library.bind(f.matmul_preference_set_attribute, "cublasLtMatmulPreferenceSetAttribute");
  library.bind(f.matmul_preference_destroy, "cublasLtMatmulPreferenceDestroy");
  return f;
}

}  // namespace

void CublasLtLibrary::check(cublasStatus_t status, std::string_view what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const ErrorCode code = status == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::failed;
  QUENCH_FAIL(code, "{}: cuBLASLt says {}", what, get_status_string(status));
}

const CublasLtLibrary& cublaslt() {
  static const CublasLtLibrary library = load();
  return library;
}

}  // namespace quench::cuda
