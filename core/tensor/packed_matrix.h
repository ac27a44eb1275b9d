#pragma once
// A weight matrix in the form that it is served in: element codes, and scales that runs of a row share. Whatever scheme
// a file stores (integers with zero points, float8 by block, MX, NVFP4, GGUF blocks), in memory it is one of these.

#include <string>

#include "core/tensor/tensor.h"

namespace quench {

// w[n, k] = scales[n, k / group_size] * value(codes[n, k]) + offsets[n, k / group_size], in f32.
class PackedMatrix {
 public:
  PackedMatrix() = default;  // undefined
  // codes [N,K]: i4 (two's complement, even element in the low nibble), i8, f8_e4m3 or f4_e2m1.
  // scales [N,G]: f32, bf16 or f16, with G = ceil(K / group_size).
  // offsets f32 [N,G], or undefined: 0.
  // All contiguous and on one device; K and group_size even for 4-bit codes. Throws invalid_argument naming the part
  // that does not fit.
  PackedMatrix(std::int64_t group_size, Tensor codes, Tensor scales, Tensor offsets = {});

  [[nodiscard]] bool defined() const noexcept { return codes_.defined(); }
  [[nodiscard]] std::int64_t rows() const { return codes_.size(0); }
  [[nodiscard]] std::int64_t columns() const { return codes_.size(1); }
  [[nodiscard]] std::int64_t group_size() const noexcept { return group_size_; }
  [[nodiscard]] std::int64_t groups() const { return scales_.size(1); }  // of a row
  [[nodiscard]] const Tensor& codes() const noexcept { return codes_; }
  [[nodiscard]] const Tensor& scales() const noexcept { return scales_; }
  [[nodiscard]] const Tensor& offsets() const noexcept { return offsets_; }
  [[nodiscard]] Device device() const { return codes_.device(); }
  [[nodiscard]] std::size_t nbytes() const;

  // Rows [begin, begin + count), a view.
  [[nodiscard]] PackedMatrix narrow_rows(std::int64_t begin, std::int64_t count) const;
  [[nodiscard]] PackedMatrix to(Device device) const;
  // Whether rows of both can stand in one matrix.
  [[nodiscard]] bool same_form(const PackedMatrix& other) const;

  [[nodiscard]] std::string describe() const;  // "i4[4096, 1024] by groups of 32 on cpu"

 private:
  std::int64_t group_size_ = 0;
  Tensor codes_, scales_, offsets_;
};

// The rows of all parts one below the other; parts have the same form.
[[nodiscard]] PackedMatrix concatenate_rows(std::span<const PackedMatrix> parts);

}  // namespace quench
