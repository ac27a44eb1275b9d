#include "core/cuda/sm90/tensor_map.h"

#include "core/cuda/common/toolkit.h"

namespace quench::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

}  // namespace

CUtensorMap make_tensor_map(const Tensor& tensor, int box_rows, int box_columns) {
  static const auto encode = reinterpret_cast<Encode>(driver_entry("cuTensorMapEncodeTiled"));
  QUENCH_CHECK_AS(ErrorCode::unsupported, encode != nullptr, "the driver has no tensor maps (CUDA 12 has)");
  const bool bytes = byte_size(tensor.dtype()) == 1;
  const auto rank = static_cast<cuuint32_t>(tensor.rank());
  std::array<cuuint64_t, 3> sizes{}, strides{};
  auto stride = static_cast<cuuint64_t>(byte_size(tensor.dtype()));
  for (cuuint32_t axis = 0; axis < rank; ++axis) {  // innermost first
    sizes[axis] = static_cast<cuuint64_t>(tensor.size(static_cast<int>(rank - 1 - axis)));
    stride *= sizes[axis];
    strides[axis] = stride;  // next outer axis
  }
  const std::array<cuuint32_t, 3> box{static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows), 1};
  const std::array<cuuint32_t, 3> steps{1, 1, 1};
  CUtensorMap map{};
  const CUresult result =
      encode(&map, bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, tensor.raw_data(),
             sizes.data(), strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  QUENCH_CHECK_AS(ErrorCode::failed, result == CUDA_SUCCESS, "a tensor map of {} in boxes of {} x {} was refused ({})",
                  tensor.describe(), box_rows, box_columns, static_cast<int>(result));
  return map;
}

}  // namespace quench::cuda
