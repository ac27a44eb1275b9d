#pragma once
// cuBLASLt, loaded at the first GEMM.

#include <cublasLt.h>

#include <string_view>

namespace quench::cuda {

struct CublasLtLibrary {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) get_version;
  decltype(&cublasLtGetStatusString) get_status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoCheck) matmul_algo_check;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) matmul_algo_config_get_attribute;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) matmul_algo_config_set_attribute;
  decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic;
  decltype(&cublasLtMatmulAlgoInit) matmul_algo_init;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
  decltype(&cublasLtMatmulDescGetAttribute) matmul_desc_get_attribute;
  decltype(&cublasLtMatrixLayoutCreate) matrix_layout_create;
  decltype(&cublasLtMatrixLayoutGetAttribute) matrix_layout_get_attribute;
  decltype(&cublasLtMatmulPreferenceCreate) matmul_preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute;
  decltype(&cublasLtMatmulPreferenceDestroy) matmul_preference_destroy;

  void check(cublasStatus_t status, std::string_view what) const;
};

// Throws unsupported, with the searched paths, if missing.
[[nodiscard]] const CublasLtLibrary& cublaslt();

}  // namespace quench::cuda
