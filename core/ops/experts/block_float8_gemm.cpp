#include "core/ops/experts/block_float8_gemm.h"

#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<BlockFloat8GemmArgs> block_float8_gemm_slot("block_float8_gemm");
constinit KernelSlot<BlockFloat8WgradArgs> block_float8_wgrad_slot("block_float8_wgrad");

namespace {

// 1x128 groups: [N,128*Kb] with scales [Kb,N].
void check_lines(std::string_view op, std::string_view name, const BlockFloat8& x, std::int64_t lines) {
  check_tensor(op, name, x.codes, {lines, -1}, DType::f8_e4m3);
  const std::int64_t length = x.codes.size(1);
  QUENCH_CHECK(length % kFloat8Block == 0, "{}: {} {} is not whole blocks of {}", op, name, x.codes.describe(),
               kFloat8Block);
  check_tensor(op, name, x.scales, {length / kFloat8Block, lines}, DType::f32);
  check_contiguous(op, name, x.codes);
  check_contiguous(op, name, x.scales);
}

// i32 [1].
Tensor whole_group(const Tensor& ends, std::int64_t rows, Device device) {
  if (ends.defined()) return ends;
  if (device.is_meta()) return Tensor::empty({1}, DType::i32, device);
  return Tensor::from_values<std::int32_t>({1}, std::array{static_cast<std::int32_t>(rows)}).to(device);
}

// f32 GEMM, rounded to c.
template <class Product>
void into(const Tensor& c, bool adds, const Product& product) {
  if (c.dtype() == DType::f32) return product(c);
  const Tensor sum = Tensor::empty(c.shape(), DType::f32, c.device());
  if (adds) cast({c, sum});
  product(sum);
  cast({sum, c});
}

Tensor values(const BlockFloat8& x, const Shape& shape, Orientation orientation = Orientation::natural) {
  const Tensor out = Tensor::empty(shape, DType::f32, x.codes.device());
  block_float8_values({x, out, orientation});
  return out;
}

void emulated_gemm(const BlockFloat8GemmArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor a = values(args.a, args.a.codes.shape()), b = values(args.b, args.b.codes.shape());
  const Tensor ends = whole_group(args.ends, a.size(0), a.device());
  into(args.c, false, [&](const Tensor& c) {
    grouped_gemm(GroupedGemmArgs{.a = a, .b = b, .ends = ends, .c = c, .transpose_b = true});
  });
}

void emulated_wgrad(const BlockFloat8WgradArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const auto rows_of = [](const BlockFloat8& x) {
    return values(x, {x.codes.size(1), x.codes.size(0)}, Orientation::transposed);
  };
  const Tensor a = rows_of(args.a), b = rows_of(args.b);
  const Tensor ends = whole_group(args.ends, a.size(0), a.device());
  into(args.c, args.beta != 0.0f, [&](const Tensor& c) {
    grouped_wgrad(GroupedWgradArgs{.a = a, .b = b, .ends = ends, .c = c, .beta = args.beta});
  });
}

// Calls each(group, first row, rows); on the meta device every group has all rows, an upper bound for memory plans.
template <class Each>
void for_groups(const Tensor& ends, std::int64_t groups, std::int64_t rows, const Each& each) {
  QUENCH_CHECK(!ends.defined() || ends.device().is_cpu() || ends.device().is_meta(),
               "blockwise GEMMs by group: the host does not see the ends of groups on {}", ends.device().to_string());
  const bool known = ends.defined() && ends.device().is_cpu();
  std::int64_t begin = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t end = known ? ends.data<std::int32_t>()[group] : rows;
    each(group, begin, end - begin);
    if (known) begin = end;
  }
}

BlockFloat8 squares_of(const BlockFloat8& all, std::int64_t group) {
  return {all.codes.narrow(0, group, 1), all.scales.narrow(0, group, 1)};
}

void emulated_gemm_by_group(const BlockFloat8GemmArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor a = values(args.a, args.a.codes.shape());
  std::int64_t last = 0;
  for_groups(args.ends, args.b.codes.size(0), a.size(0),
             [&](std::int64_t group, std::int64_t begin, std::int64_t rows) {
               last = begin + rows;
               if (rows == 0) return;
               const BlockFloat8 square = squares_of(args.b, group);
               const Tensor b = values(square, square.codes.shape()), ends = whole_group(Tensor(), rows, a.device());
               into(args.c.narrow(0, begin, rows), false, [&](const Tensor& c) {
                 grouped_gemm(
                     GroupedGemmArgs{.a = a.narrow(0, begin, rows), .b = b, .ends = ends, .c = c, .transpose_b = true});
               });
             });
  if (last < args.c.size(0)) args.c.narrow(0, last, args.c.size(0) - last).zero();
}

void emulated_wgrad_by_group(const BlockFloat8WgradArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const auto rows_of = [](const BlockFloat8& x) {
    return values(x, {x.codes.size(1), x.codes.size(0)}, Orientation::transposed);
  };
  const Tensor a = rows_of(args.a), b = rows_of(args.b);
  for_groups(args.ends, args.c.size(0), a.size(0), [&](std::int64_t group, std::int64_t begin, std::int64_t rows) {
    const Tensor ends = whole_group(Tensor(), rows, a.device());
    into(args.c.narrow(0, group, 1), args.beta != 0.0f, [&](const Tensor& c) {
      grouped_wgrad(GroupedWgradArgs{
          .a = a.narrow(0, begin, rows), .b = b.narrow(0, begin, rows), .ends = ends, .c = c, .beta = args.beta});
    });
  });
}

[[maybe_unused]] const bool gemm_registered = block_float8_gemm_slot.fill(DeviceType::cpu, &emulated_gemm_by_group);
[[maybe_unused]] const bool wgrad_registered = block_float8_wgrad_slot.fill(DeviceType::cpu, &emulated_wgrad_by_group);

}  // namespace

std::string op_label(const BlockFloat8GemmArgs& args) {
  return fmt::format("block float8 gemm {}x({}x{})x{} {}", args.c.size(0), args.b.codes.size(0), args.c.size(1),
                     args.a.codes.size(1), to_string(args.c.dtype()));
}

std::string op_label(const BlockFloat8WgradArgs& args) {
  return fmt::format("block float8 wgrad ({}x{})x{}x{} {}{}", args.c.size(0), args.c.size(1), args.c.size(2),
                     args.a.codes.size(1), to_string(args.c.dtype()), args.beta != 0.0f ? " +=" : "");
}

void grouped_gemm(const BlockFloat8GemmArgs& args) {
  constexpr std::string_view op = "grouped_gemm";
  check_float_tensor(op, "c", args.c, 2);
  check_contiguous(op, "c", args.c);
  check_lines(op, "a", args.a, args.c.size(0));
  const std::int64_t length = args.a.codes.size(1), columns = args.c.size(1);
  check_tensor(op, "b", args.b.codes, {-1, columns, length}, DType::f8_e4m3);
  const std::int64_t groups = args.b.codes.size(0);
  check_tensor(op, "b", args.b.scales, {groups, float8_blocks(columns), length / kFloat8Block}, DType::f32);
  check_contiguous(op, "b", args.b.codes);
  check_contiguous(op, "b", args.b.scales);
  if (args.ends.defined())
    check_tensor(op, "ends", args.ends, {groups}, DType::i32);
  else
    QUENCH_CHECK(groups == 1, "{}: {} groups without ends", op, groups);
  check_same_device(op, {&args.c, &args.a.codes, &args.a.scales, &args.b.codes, &args.b.scales, &args.ends});
  if (args.c.numel() == 0) return;
  if (args.gemms == BlockGemms::emulated) return emulated_gemm(args);
  if (args.gemms == BlockGemms::emulated_by_group) return emulated_gemm_by_group(args);
  BlockFloat8GemmArgs whole = args;
  whole.ends = whole_group(args.ends, args.c.size(0), args.c.device());
  block_float8_gemm_slot(args.c.device().type, whole);
}

void grouped_wgrad(const BlockFloat8WgradArgs& args) {
  constexpr std::string_view op = "grouped_wgrad";
  check_float_tensor(op, "c", args.c, 3);
  check_gradient_sum(op, "c", args.c, args.c.shape(), args.c.dtype());
  check_lines(op, "a", args.a, args.c.size(1));
  check_lines(op, "b", args.b, args.c.size(2));
  QUENCH_CHECK(args.a.codes.size(1) == args.b.codes.size(1), "{}: a {} and b {} differ in their rows", op,
               args.a.codes.describe(), args.b.codes.describe());
  const std::int64_t groups = args.c.size(0);
  if (args.ends.defined())
    check_tensor(op, "ends", args.ends, {groups}, DType::i32);
  else
    QUENCH_CHECK(groups == 1, "{}: {} groups without ends", op, groups);
  check_same_device(op, {&args.c, &args.a.codes, &args.a.scales, &args.b.codes, &args.b.scales, &args.ends});
  if (args.c.numel() == 0) return;
  if (args.gemms == BlockGemms::emulated) return emulated_wgrad(args);
  if (args.gemms == BlockGemms::emulated_by_group) return emulated_wgrad_by_group(args);
  BlockFloat8WgradArgs whole = args;
  whole.ends = whole_group(args.ends, args.a.codes.size(1), args.c.device());
  block_float8_wgrad_slot(args.c.device().type, whole);
}

}  // namespace quench
