#include "core/cuda/gemm/gemm_panels.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace quench::cuda {
namespace {

constexpr std::int64_t kPanelRows = 128;

std::byte* at(const void* matrix, std::int64_t row, std::int64_t row_bytes) {
  return static_cast<std::byte*>(const_cast<void*>(matrix)) + row * row_bytes;
}

void copy_matrix(void* to, std::int64_t to_row, const void* from, std::int64_t from_row, std::int64_t row_bytes,
                 std::int64_t rows, Stream stream) {
  check(cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_row), from, static_cast<std::size_t>(from_row),
                          static_cast<std::size_t>(row_bytes), static_cast<std::size_t>(rows), cudaMemcpyDefault,
                          native(stream)),
        "cudaMemcpy2DAsync", stream);
}

}  // namespace

GemmProblem GemmPanels::panel_of(const GemmProblem& problem) {
  GemmProblem panel = problem;
  panel.m = kPanelRows;
  panel.lda = panel.k;
  panel.ldc = panel.n;
  panel.ld_addend = 0;
  panel.align_a = panel.align_c = panel.align_addend = 16;
  return panel;
}

GemmPanels::GemmPanels(const GemmProblem& panel, const GemmCall& call, cublasLtHandle_t handle)
    : panel_(panel), plan_(panel_), handle_(handle) {
  plan_.bind_scales(call);
  if (const auto found = plan_.candidates(handle, 1); !found.empty()) algorithm_ = found.front();
}

Tensor GemmPanels::rows_of(const GemmProblem& problem, const GemmCall& call, std::int64_t first, std::int64_t rows,
                           void* workspace, Stream stream) const {
  const auto a_row = panel_.k * static_cast<std::int64_t>(byte_size(panel_.a)),
             a_pitch = problem.lda * static_cast<std::int64_t>(byte_size(panel_.a));
  const Tensor a = Tensor::zeros({kPanelRows, a_row}, DType::u8, stream.device),
               c = Tensor::empty({kPanelRows, panel_.n}, panel_.result, stream.device),
               scales = Tensor::zeros({kPanelRows}, DType::f32, stream.device);
  copy_matrix(a.raw_data(), a_row, at(call.a, first, a_pitch), a_pitch, a_row, rows, stream);
  GemmCall panel = call;
  panel.a = a.raw_data();
  panel.c = c.raw_data();
  panel.addend = panel.c;
  if (panel_.scales == GemmScales::rows) {
    const auto bytes = static_cast<std::int64_t>(sizeof(float));
    copy_matrix(scales.raw_data(), bytes, at(call.scale_a, first, bytes), bytes, bytes, rows, stream);
    panel.scale_a = scales.raw_data();
  }
  cublaslt().check(plan_.run(handle_, panel, *algorithm_, workspace, native(stream)),
                   fmt::format("gemm {} in panels", problem.to_string()));
  return c;
}

void GemmPanels::run(const GemmProblem& problem, const GemmCall& call, void* workspace, Stream stream) const {
  const MemoryScope scope(MemoryCategory::workspace);
  const auto size = static_cast<std::int64_t>(byte_size(panel_.result));
  for (std::int64_t first = 0; first < problem.m; first += kPanelRows) {
    const std::int64_t rows = std::min(kPanelRows, problem.m - first);
    const Tensor panel = rows_of(problem, call, first, rows, workspace, stream);
    copy_matrix(at(call.c, first, problem.ldc * size), problem.ldc * size, panel.raw_data(), panel_.n * size,
                panel_.n * size, rows, stream);
  }
}

bool GemmPanels::matches(const GemmProblem& problem, const GemmCall& call, void* workspace, Stream stream) const {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 18;
  const MemoryScope scope(MemoryCategory::workspace);
  const auto size = static_cast<std::int64_t>(byte_size(panel_.result)), row_bytes = panel_.n * size;
  const std::int64_t rows =
      std::min({kPanelRows, problem.m, std::max<std::int64_t>(8, kMostElements / std::max<std::int64_t>(1, panel_.n))});
  std::vector<std::byte> expected(static_cast<std::size_t>(rows * row_bytes)), actual(expected.size());
  for (const std::int64_t first : {std::int64_t{0}, problem.m - rows}) {
    const Tensor panel = rows_of(problem, call, first, rows, workspace, stream);
    copy_matrix(expected.data(), row_bytes, panel.raw_data(), row_bytes, row_bytes, rows, stream);
    copy_matrix(actual.data(), row_bytes, at(call.c, first, problem.ldc * size), problem.ldc * size, row_bytes, rows,
                stream);
    check(cudaStreamSynchronize(native(stream)), "cudaStreamSynchronize", stream);
    if (std::memcmp(expected.data(), actual.data(), expected.size()) != 0) return false;
  }
  return true;
}

}  // namespace quench::cuda
