#include "core/cuda/gemm/gemm_problem.h"

#include <algorithm>

#include "core/device/determinism.h"

namespace quench::cuda {
namespace {

std::int64_t leading_dimension(std::string_view name, const Tensor& matrix) {
  const std::int64_t width = std::max<std::int64_t>(matrix.size(1), 1);
  if (matrix.size(0) <= 1) return width;
  QUENCH_CHECK(matrix.stride(0) >= width, "gemm: rows of {} ({} with strides {}) overlap", name, matrix.describe(),
               matrix.strides().to_string());
  return matrix.stride(0);
}

std::uint8_t alignment(const Tensor& matrix) {
  const auto address = reinterpret_cast<std::uintptr_t>(matrix.raw_data());
  return static_cast<std::uint8_t>(std::min<std::uintptr_t>(16, address & (~address + 1)));
}

}  // namespace

GemmProblem GemmProblem::of(const GemmArgs& args) {
  GemmProblem p;
  p.m = args.c.size(0);
  p.n = args.c.size(1);
  p.k = args.a.size(args.transpose_a ? 0 : 1);
  p.lda = leading_dimension("a", args.a);
  p.ldb = leading_dimension("b", args.b);
  p.ldc = leading_dimension("c", args.c);
  p.a = args.a.dtype();
  p.b = args.b.dtype();
  p.result = args.c.dtype();
  p.transpose_a = args.transpose_a;
  p.transpose_b = args.transpose_b;
  p.bias = args.bias.defined();
  p.accumulate = args.beta != 0.0f;
  p.unsplit = batch_invariant() && !p.transpose_a && p.transpose_b;  // forward passes
  p.align_a = alignment(args.a);
  p.align_b = alignment(args.b);
  p.align_c = alignment(args.c);
  p.align_addend = p.align_c;
  if (args.addend.defined() && p.accumulate) {
    p.ld_addend = leading_dimension("addend", args.addend);
    p.align_addend = alignment(args.addend);
  }
  return p;
}

GemmProblem GemmProblem::of(const ScaledGemmArgs& args) {
  GemmProblem p;
  p.m = args.c.size(0);
  p.n = args.c.size(1);
  p.k = p.lda = p.ldb = args.a.shape()[1];
  p.ldc = leading_dimension("c", args.c);
  p.a = args.a.payload().dtype();
  p.b = args.b.payload().dtype();
  p.result = args.c.dtype();
  p.transpose_b = true;
  p.accumulate = args.beta != 0.0f;
  const auto by_tensor = [](const QuantTensor& x) { return x.format().granularity == Granularity::tensor; };
  p.scales = by_tensor(args.a) && by_tensor(args.b) ? GemmScales::tensor : GemmScales::rows;
  p.fast_accumulation = args.fast_accumulation;
  p.unsplit = batch_invariant();
  p.align_a = alignment(args.a.payload());
  p.align_b = alignment(args.b.payload());
  p.align_c = p.align_addend = alignment(args.c);
  return p;
}

GemmProblem GemmProblem::of(const BlockScaledGemmArgs& args) {
  GemmProblem p;
  p.m = args.c.size(0);
  p.n = args.c.size(1);
  p.k = p.lda = p.ldb = args.a.shape()[1];
  p.ldc = leading_dimension("c", args.c);
  p.a = args.a.payload().dtype();
  p.b = args.b.payload().dtype();
  p.result = args.c.dtype();
  p.transpose_b = true;
  p.accumulate = args.beta != 0.0f;
  p.scales = args.a.format().element == ElementFormat::e2m1 ? GemmScales::nvfp4 : GemmScales::mxfp8;
  p.device_factors = args.a.global_scale().defined();
  p.unsplit = batch_invariant();
  p.align_a = alignment(args.a.payload());
  p.align_b = alignment(args.b.payload());
  p.align_c = p.align_addend = alignment(args.c);
  return p;
}

namespace {

std::string_view scales_name(GemmScales scales) {
  switch (scales) {
    case GemmScales::rows: return "row";
    case GemmScales::mxfp8: return "block of 32";
    case GemmScales::nvfp4: return "block of 16";
    case GemmScales::none:
    case GemmScales::tensor: break;
  }
  return "tensor";
}

}  // namespace

std::string GemmProblem::to_string() const {
  std::string operands(quench::to_string(a));
  if (scales != GemmScales::none)
    operands += fmt::format(" x {} by {}{}{}", quench::to_string(b), scales_name(scales),
                            fast_accumulation ? " fast" : "", device_factors ? " global" : "");
  const std::string addend = ld_addend > 0 ? fmt::format(" addend ld {} align {}", ld_addend, align_addend) : "";
  return fmt::format("{}->{} {}{} m{} n{} k{} ld {} {} {} align {} {} {}{}{}{}{}", operands, quench::to_string(result),
                     transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, lda, ldb, ldc, align_a, align_b,
                     align_c, bias ? " bias" : "", accumulate ? " add" : "", addend, unsplit ? " unsplit" : "");
}

std::size_t GemmProblemHash::operator()(const GemmProblem& p) const noexcept {
  std::uint64_t h = 0;
  const auto mix = [&h](std::int64_t value) {
    h = (h ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 32;
  };
  for (const std::int64_t value : {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.ld_addend}) mix(value);
  mix(static_cast<std::int64_t>(p.a) << 16 | static_cast<std::int64_t>(p.b) << 8 | static_cast<std::int64_t>(p.result));
  mix(p.transpose_a | p.transpose_b << 1 | p.bias << 2 | p.accumulate << 3 | p.fast_accumulation << 4 |
      static_cast<int>(p.scales) << 5 | p.unsplit << 8);
  mix(p.align_a | p.align_b << 8 | p.align_c << 16 | p.align_addend << 24);
  return h;
}

}  // namespace quench::cuda
