
#include "core/cpu/quantize/quantize_common.h"

namespace quench {
namespace {

template <class T>
float amax_of_tensor(const T* x, std::int64_t count) {
  constexpr std::int64_t kPiece = 8192;
  const std::int64_t pieces = (count + kPiece - 1) / kPiece;
  Magnitude<T> most = 0;
#pragma omp parallel for schedule(static) reduction(max : most) if (count >= kParallelElements)
  for (std::int64_t i = 0; i < pieces; ++i)
    most = std::max(most, max_magnitude(x + i * kPiece, std::min(kPiece, count - i * kPiece)));
  return magnitude_value(most);
}

template <class T>
void amax_of_rows(const T* x, float* out, std::int64_t rows, std::int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) out[r] = magnitude_value(max_magnitude(x + r * columns, columns));
}

// By column strips.
template <class T>
void amax_of_columns(const T* x, float* out, const MatrixBatch& shape) {
  constexpr std::int64_t kStrip = 256;
  const std::int64_t strips = (shape.columns + kStrip - 1) / kStrip;
#pragma omp parallel for collapse(2) schedule(static) if (shape.numel() >= kParallelElements)
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t first = s * kStrip, width = std::min(kStrip, shape.columns - first);
      Magnitude<T> most[kStrip] = {};
      for (std::int64_t r = 0; r < shape.rows; ++r) {
        const T* row = x + (b * shape.rows + r) * shape.columns + first;
        for (std::int64_t c = 0; c < width; ++c) most[c] = std::max(most[c], magnitude(row[c]));
      }
      for (std::int64_t c = 0; c < width; ++c) out[b * shape.columns + first + c] = magnitude_value(most[c]);
    }
  }
}

void amax_cpu(const AmaxArgs& args) {
  const MatrixBatch shape(args.x.shape());
  float* out = args.amax.data<float>();
  dispatch<float, bfloat16>(args.x.dtype(), "amax", [&]<class T>() {
    const T* x = args.x.data<T>();
    switch (args.granularity) {
      case Granularity::tensor: {
        const float found = amax_of_tensor(x, shape.numel());
        *out = args.accumulate ? magnitude_value(std::max(magnitude(*out), magnitude(found))) : found;
        break;
      }
      case Granularity::row: amax_of_rows(x, out, shape.batch * shape.rows, shape.columns); break;
      case Granularity::column: amax_of_columns(x, out, shape); break;
      case Granularity::block: QUENCH_FAIL(ErrorCode::unsupported, "amax: granularity block");
    }
  });
}

QUENCH_CPU_KERNEL(amax_slot, amax_cpu);

}  // namespace
}  // namespace quench
