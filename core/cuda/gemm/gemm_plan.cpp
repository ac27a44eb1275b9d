#include "core/cuda/gemm/gemm_plan.h"

namespace quench::cuda {
namespace {

// No TF32 (10-bit mantissa) for f32 operands.
constexpr cublasComputeType_t kComputeType = CUBLAS_COMPUTE_32F;
constexpr cudaDataType_t kScaleType = CUDA_R_32F;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f8_e4m3: return CUDA_R_8F_E4M3;
    case DType::f8_e5m2: return CUDA_R_8F_E5M2;
    default: QUENCH_FAIL(ErrorCode::unsupported, "gemm: dtype {} is not supported", to_string(dtype));
  }
}

cublasLtMatrixLayout_t layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t leading) {
  cublasLtMatrixLayout_t made = nullptr;
  cublaslt().check(cublaslt().matrix_layout_create(&made, data_type(dtype), static_cast<std::uint64_t>(rows),
                                                   static_cast<std::uint64_t>(columns), leading),
                   "cublasLtMatrixLayoutCreate");
  return made;
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  cublaslt().check(cublaslt().matmul_desc_set_attribute(operation, attribute, &value, sizeof value),
                   "cublasLtMatmulDescSetAttribute");
}

class Preference {
 public:
  Preference() {
    cublaslt().check(cublaslt().matmul_preference_create(&preference_), "cublasLtMatmulPreferenceCreate");
  }
  ~Preference() { cublaslt().matmul_preference_destroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    cublaslt().check(cublaslt().matmul_preference_set_attribute(preference_, attribute, &value, sizeof value),
                     "cublasLtMatmulPreferenceSetAttribute");
  }
  [[nodiscard]] cublasLtMatmulPreference_t get() const noexcept { return preference_; }

 private:
  cublasLtMatmulPreference_t preference_ = nullptr;
};

}  // namespace

GemmPlan::GemmPlan(const GemmProblem& p) : problem_(p) {
  const CublasLtLibrary& lt = cublaslt();
  lt.check(lt.matmul_desc_create(&operation_, kComputeType, kScaleType), "cublasLtMatmulDescCreate");
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(p.a));
  }
  if (p.scales != GemmScales::none) {
    const cublasLtMatmulMatrixScale_t mode = p.scales == GemmScales::rows ? CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
                                                                          : CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
    set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
    set(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.fast_accumulation));
  }
  first_ = p.transpose_b ? layout(p.b, p.k, p.n, p.ldb) : layout(p.b, p.n, p.k, p.ldb);
  second_ = p.transpose_a ? layout(p.a, p.m, p.k, p.lda) : layout(p.a, p.k, p.m, p.lda);
  result_ = layout(p.result, p.n, p.m, p.ldc);
  addend_ = p.ld_addend > 0 ? layout(p.result, p.n, p.m, p.ld_addend) : result_;
}

void GemmPlan::bind_scales(const GemmCall& call) const {
  if (problem_.scales == GemmScales::none) return;
  set(operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.scale_b);
  set(operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.scale_a);
}

std::vector<cublasLtMatmulAlgo_t> GemmPlan::candidates(cublasLtHandle_t handle, int most) const {
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kGemmWorkspaceBytes});
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{problem_.align_b});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{problem_.align_a});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{problem_.align_addend});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{problem_.align_c});
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublaslt().matmul_algo_get_heuristic(
      handle, operation_, first_, second_, addend_, result_, preference.get(), most, results.data(), &found);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  if (status != CUBLAS_STATUS_SUCCESS) return algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

bool GemmPlan::init(cublasLtHandle_t handle, int id, cublasLtMatmulAlgo_t& algorithm) const {
  const cudaDataType_t result = data_type(problem_.result);
  return cublaslt().matmul_algo_init(handle, kComputeType, kScaleType, data_type(problem_.b), data_type(problem_.a),
                                     result, result, id, &algorithm) == CUBLAS_STATUS_SUCCESS;
}

bool GemmPlan::supports(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublaslt().matmul_algo_check(handle, operation_, first_, second_, addend_, result_, &algorithm, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kGemmWorkspaceBytes;
}

cublasStatus_t GemmPlan::run(cublasLtHandle_t handle, const GemmCall& call, const cublasLtMatmulAlgo_t& algorithm,
                             void* workspace, cudaStream_t stream) const {
  if (problem_.bias) set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  bind_scales(call);
  return cublaslt().matmul(handle, operation_, &call.alpha, call.b, first_, call.a, second_, &call.beta, call.addend,
                           addend_, call.c, result_, &algorithm, workspace, kGemmWorkspaceBytes, stream);
}

}  // namespace quench::cuda
