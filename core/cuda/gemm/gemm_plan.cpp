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
#if CUBLAS_VERSION >= 120800
    case DType::f4_e2m1: return CUDA_R_4F_E2M1;
#endif
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

// Scale modes are cuBLASLt 12.8's, rowwise ones 12.9's; before, scales of float8 operands are per tensor.
void set_scale_mode([[maybe_unused]] cublasLtMatmulDesc_t operation, GemmScales scales) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, compiled_for(scales), "gemm: built without the scale mode of the operands");
#if CUBLAS_VERSION >= 120800
  cublasLtMatmulMatrixScale_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  if (scales == GemmScales::mxfp8) mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
  if (scales == GemmScales::nvfp4) mode = CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
#if CUBLAS_VERSION >= 120900
  if (scales == GemmScales::rows) mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
#endif
  set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode);
  set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode);
#endif
}

// The algorithm without split-K: of few tiles and a long K the heuristic proposes no other.
bool unsplit(cublasLtMatmulAlgo_t& algorithm) {
  const auto set = [&algorithm](cublasLtMatmulAlgoConfigAttributes_t attribute, std::uint32_t value) {
    return cublaslt().matmul_algo_config_set_attribute(&algorithm, attribute, &value, sizeof value) ==
           CUBLAS_STATUS_SUCCESS;
  };
  return set(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1) &&
         set(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_REDUCTION_SCHEME_NONE);
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

bool compiled_for(GemmScales scales) {
  const int needed = scales == GemmScales::rows ? 120900 : are_blocked(scales) ? 120800 : 0;
  return CUBLAS_VERSION >= needed;
}

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
    set_scale_mode(operation_, p.scales);
    if (!are_blocked(p.scales))
      set(operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.fast_accumulation));
  }
  if (p.device_factors) set(operation_, CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
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
    auto& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS &&
        (!problem_.unsplit || (unsplit(result.algo) && supports(handle, result.algo))))
      algorithms.push_back(result.algo);
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
  const float* alpha = problem_.device_factors ? call.device_factors : &call.alpha;
  const float* beta = problem_.device_factors ? call.device_factors + 1 : &call.beta;
  return cublaslt().matmul(handle, operation_, alpha, call.b, first_, call.a, second_, beta, call.addend, addend_,
                           call.c, result_, &algorithm, workspace, kGemmWorkspaceBytes, stream);
}

std::string GemmPlan::describe() const {
  const auto operation = [this](cublasLtMatmulDescAttributes_t attribute) {
    std::int32_t value = 0;
    std::size_t written = 0;
    cublaslt().check(cublaslt().matmul_desc_get_attribute(operation_, attribute, &value, sizeof value, &written),
                     "cublasLtMatmulDescGetAttribute");
    return value;
  };
  const auto matrix = [](cublasLtMatrixLayout_t of) {
    const auto get = [of](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      std::size_t written = 0;
      cublaslt().check(cublaslt().matrix_layout_get_attribute(of, attribute, &value, sizeof value, &written),
                       "cublasLtMatrixLayoutGetAttribute");
      return value;
    };
    return fmt::format("{} {}x{} ld {}", get(CUBLASLT_MATRIX_LAYOUT_TYPE, std::uint32_t{}),
                       get(CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{}),
                       get(CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{}),
                       get(CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{}));
  };
  const auto op = [&](cublasLtMatmulDescAttributes_t attribute) {
    return operation(attribute) == CUBLAS_OP_T ? 'T' : 'N';
  };
  std::string scales;
#if CUBLAS_VERSION >= 120800
  if (problem_.scales != GemmScales::none)
    scales = fmt::format(", scales {} {}", operation(CUBLASLT_MATMUL_DESC_A_SCALE_MODE),
                         operation(CUBLASLT_MATMUL_DESC_B_SCALE_MODE));
#endif
  return fmt::format("A {} {}, B {} {}, C {}, D {}{}, pointer mode {}", matrix(first_), op(CUBLASLT_MATMUL_DESC_TRANSA),
                     matrix(second_), op(CUBLASLT_MATMUL_DESC_TRANSB), matrix(addend_), matrix(result_), scales,
                     operation(CUBLASLT_MATMUL_DESC_POINTER_MODE));
}

}  // namespace quench::cuda
