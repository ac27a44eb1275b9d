#pragma once
// Parameters of the paged decode kernels.

#include "core/cuda/attention/decode_params.cuh"

namespace quench::cuda {

template <class T, class C>
struct PagedParams : DecodeParams<T, C> {
  const std::int32_t* positions;
  const std::int32_t* pages;
  std::int64_t pages_row, chunk;
  int page_bits;
  bool
      constant_cache;  // positions, pages and rows of earlier tokens are complete before the preceding kernel (pdl.cuh)
};

__device__ inline std::int64_t first_paged_key(std::int64_t position, std::int64_t window, std::int64_t chunk) {
  if (chunk > 0) return position / chunk * chunk;
  return window > 0 ? max(std::int64_t{0}, position + 1 - window) : 0;
}

}  // namespace quench::cuda
