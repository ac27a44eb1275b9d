#include "core/tensor/packed_matrix.h"

#include <utility>

namespace quench {
namespace {

constexpr std::string_view kName = "packed matrix";

bool is_code(DType dtype) {
  return dtype == DType::i4 || dtype == DType::i8 || dtype == DType::f8_e4m3 || dtype == DType::f4_e2m1;
}

Tensor narrow(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
  return tensor.defined() ? tensor.narrow(0, begin, count) : tensor;
}

}  // namespace

PackedMatrix::PackedMatrix(std::int64_t group_size, Tensor codes, Tensor scales, Tensor offsets, Tensor global_scales)
    : group_size_(group_size),
      codes_(std::move(codes)),
      scales_(std::move(scales)),
      offsets_(std::move(offsets)),
      global_scales_(std::move(global_scales)) {
  QUENCH_CHECK(codes_.defined() && codes_.rank() == 2 && is_code(codes_.dtype()) && codes_.is_contiguous(),
               "{}: codes are {}, expected a contiguous matrix of i4, i8, f8_e4m3 or f4_e2m1", kName,
               codes_.describe());
  const bool packed = bit_width(codes_.dtype()) == 4;
  QUENCH_CHECK(group_size_ > 0 && (!packed || (group_size_ % 2 == 0 && columns() % 2 == 0)),
               "{}: groups of {} in {}; 4-bit codes need even numbers", kName, group_size_, codes_.describe());
  const Shape shape{rows(), (columns() + group_size_ - 1) / group_size_};
  QUENCH_CHECK(scales_.defined() &&
                   (scales_.dtype() == DType::f32 || scales_.dtype() == DType::bf16 || scales_.dtype() == DType::f16),
               "{}: scales are {}, expected f32, bf16 or f16", kName, scales_.describe());
  check_tensor(kName, "scales", scales_, shape, scales_.dtype());
  if (offsets_.defined()) check_tensor(kName, "offsets", offsets_, shape, DType::f32);
  if (global_scales_.defined()) check_tensor(kName, "global_scales", global_scales_, {rows(), 1}, DType::f32);
  QUENCH_CHECK(scales_.is_contiguous() && (!offsets_.defined() || offsets_.is_contiguous()),
               "{}: scales and offsets must be contiguous", kName);
  QUENCH_CHECK(scales_.device() == device() && (!offsets_.defined() || offsets_.device() == device()),
               "{}: codes {}, scales {}, offsets {}: not on one device", kName, codes_.describe(), scales_.describe(),
               offsets_.describe());
}

std::size_t PackedMatrix::nbytes() const {
  if (!defined()) return 0;
  return codes_.nbytes() + scales_.nbytes() + (offsets_.defined() ? offsets_.nbytes() : 0) +
         (global_scales_.defined() ? global_scales_.nbytes() : 0);
}

PackedMatrix PackedMatrix::narrow_rows(std::int64_t begin, std::int64_t count) const {
  return {group_size_, narrow(codes_, begin, count), narrow(scales_, begin, count), narrow(offsets_, begin, count),
          narrow(global_scales_, begin, count)};
}

PackedMatrix PackedMatrix::to(Device target) const {
  const auto moved = [target](const Tensor& tensor) { return tensor.defined() ? tensor.to(target) : tensor; };
  return {group_size_, codes_.to(target), scales_.to(target), moved(offsets_), moved(global_scales_)};
}

bool PackedMatrix::same_form(const PackedMatrix& other) const {
  return defined() && other.defined() && group_size_ == other.group_size_ && codes_.dtype() == other.codes_.dtype() &&
         scales_.dtype() == other.scales_.dtype() && offsets_.defined() == other.offsets_.defined() &&
         global_scales_.defined() == other.global_scales_.defined() && columns() == other.columns() &&
         device() == other.device();
}

std::string PackedMatrix::describe() const {
  if (!defined()) return "undefined packed matrix";
  return fmt::format("{}{} by groups of {} on {}", to_string(codes_.dtype()), codes_.shape().to_string(), group_size_,
                     device().to_string());
}

PackedMatrix concatenate_rows(std::span<const PackedMatrix> parts) {
  QUENCH_CHECK(!parts.empty(), "{}: nothing to concatenate", kName);
  std::int64_t rows = 0;
  for (const PackedMatrix& part : parts) {
    QUENCH_CHECK(part.same_form(parts[0]), "{}: {} and {} do not go together", kName, parts[0].describe(),
                 part.describe());
    rows += part.rows();
  }
  if (parts.size() == 1) return parts[0];
  const auto join = [&](const auto& member) {
    const Tensor& first = member(parts[0]);
    if (!first.defined()) return Tensor();
    const Tensor all = Tensor::empty({rows, first.size(1)}, first.dtype(), first.device());
    std::int64_t row = 0;
    for (const PackedMatrix& part : parts) {
      all.narrow(0, row, part.rows()).copy_from(member(part));
      row += part.rows();
    }
    return all;
  };
  return {parts[0].group_size(), join([](const PackedMatrix& part) -> const Tensor& { return part.codes(); }),
          join([](const PackedMatrix& part) -> const Tensor& { return part.scales(); }),
          join([](const PackedMatrix& part) -> const Tensor& { return part.offsets(); }),
          join([](const PackedMatrix& part) -> const Tensor& { return part.global_scales(); })};
}

}  // namespace quench
