#pragma once
// Quantized weight matrix for inference, common to all stored schemes (integers with zero points, block-scaled float8,
// MX, NVFP4, GGUF).

#include <string>

#include "core/tensor/tensor.h"

namespace quench {

// w[n, k] = scales[n, k / group_size] * value(codes[n, k]) + offsets[n, k / group_size], in f32.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // codes [N,K]: i4, i8, f8_e4m3 or f4_e2m1. scales [N,G]: f32, bf16 or f16, G = ceil(K / group_size). offsets: f32
  // [N,G], optional (0). Contiguous, one device; K and group_size even for 4-bit codes. Throws invalid_argument naming
  // the mismatch.
  // global_scales: f32 [N,1], optional: NVFP4's second level, a factor of scales already.
  PackedMatrix(std::int64_t group_size, Tensor codes, Tensor scales, Tensor offsets = {}, Tensor global_scales = {});

  [[nodiscard]] bool defined() const noexcept { return codes_.defined(); }
  [[nodiscard]] std::int64_t rows() const { return codes_.size(0); }
  [[nodiscard]] std::int64_t columns() const { return codes_.size(1); }
  [[nodiscard]] std::int64_t group_size() const noexcept { return group_size_; }
  [[nodiscard]] std::int64_t groups() const { return scales_.size(1); }  // per row
  [[nodiscard]] const Tensor& codes() const noexcept { return codes_; }
  [[nodiscard]] const Tensor& scales() const noexcept { return scales_; }
  [[nodiscard]] const Tensor& offsets() const noexcept { return offsets_; }
  [[nodiscard]] const Tensor& global_scales() const noexcept { return global_scales_; }
  [[nodiscard]] Device device() const { return codes_.device(); }
  [[nodiscard]] std::size_t nbytes() const;

  [[nodiscard]] PackedMatrix narrow_rows(std::int64_t begin, std::int64_t count) const;
  [[nodiscard]] PackedMatrix to(Device device) const;
  // Precondition of concatenate_rows().
  [[nodiscard]] bool same_form(const PackedMatrix& other) const;

  [[nodiscard]] std::string describe() const;  // "i4[4096, 1024] by groups of 32 on cpu"

 private:
  std::int64_t group_size_ = 0;
  Tensor codes_, scales_, offsets_, global_scales_;
};

// All rows in order; a single part is returned as it is. Throws invalid_argument unless same_form().
[[nodiscard]] PackedMatrix concatenate_rows(std::span<const PackedMatrix> parts);

}  // namespace quench
