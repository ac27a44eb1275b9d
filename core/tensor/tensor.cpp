#include "core/tensor/tensor.h"

#include <algorithm>

namespace quench {

namespace {

std::size_t bytes_for(const Shape& shape, DType dtype) {
  std::int64_t bits = 0;
  QUENCH_CHECK(!__builtin_mul_overflow(shape.numel(), std::int64_t{bit_width(dtype)}, &bits),
               "tensor of shape {} is too large", shape.to_string());
  return static_cast<std::size_t>((bits + 7) / 8);
}

void* offset_bytes(void* base, std::int64_t elements, DType dtype) {
  return static_cast<std::byte*>(base) + elements * bit_width(dtype) / 8;
}

// Packed types: rows of the last axis are whole bytes.
void check_packing(std::string_view op, DType dtype, const Shape& shape, const Shape& strides, std::int64_t offset) {
  if (bit_width(dtype) >= 8 || shape.numel() == 0) return;
  bool whole_bytes = shape.rank() > 0 && shape[-1] % 2 == 0 && strides[-1] == 1 && offset % 2 == 0;
  for (int i = 0; whole_bytes && i < shape.rank() - 1; ++i) whole_bytes = shape[i] <= 1 || strides[i] % 2 == 0;
  QUENCH_CHECK(whole_bytes,
               "{}: {} packs two elements a byte: the last axis must be contiguous and even, not shape {} with strides "
               "{} at element {}",
               op, to_string(dtype), shape.to_string(), strides.to_string(), offset);
}

}  // namespace

Tensor Tensor::contiguous(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype) {
  Tensor result;
  result.data_ = storage->data();
  result.storage_ = std::move(storage);
  result.shape_ = shape;
  result.strides_ = shape.contiguous_strides();
  result.dtype_ = dtype;
  return result;
}

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  check_packing("empty", dtype, shape, shape.contiguous_strides(), 0);
  return contiguous(Storage::allocate(device, bytes_for(shape, dtype)), shape, dtype);
}

Tensor Tensor::empty_pinned(const Shape& shape, DType dtype, Device peer) {
  check_packing("empty_pinned", dtype, shape, shape.contiguous_strides(), 0);
  return contiguous(Storage::allocate_pinned(peer, bytes_for(shape, dtype)), shape, dtype);
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor result = empty(shape, dtype, device);
  result.zero();
  return result;
}

Tensor Tensor::from_host(void* data, const Shape& shape, DType dtype) {
  check_packing("from_host", dtype, shape, shape.contiguous_strides(), 0);
  return contiguous(Storage::borrow(data, bytes_for(shape, dtype)), shape, dtype);
}

std::size_t Tensor::nbytes() const {
  return bytes_for(shape_, dtype_);
}

bool Tensor::is_contiguous() const {
  if (numel() == 0) return true;
  std::int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] == 1) continue;
    if (strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

Tensor Tensor::view(const Shape& shape) const {
  QUENCH_CHECK(is_contiguous(), "view: {} is not contiguous", describe());
  QUENCH_CHECK(shape.numel() == numel(), "view: {} has no view of shape {}", describe(), shape.to_string());
  check_packing("view", dtype_, shape, shape.contiguous_strides(), 0);
  Tensor result = *this;
  result.shape_ = shape;
  result.strides_ = shape.contiguous_strides();
  return result;
}

Tensor Tensor::narrow(int axis, std::int64_t start, std::int64_t length) const {
  QUENCH_CHECK(start >= 0 && length >= 0 && start <= size(axis) && length <= size(axis) - start,
               "narrow: {} from {} outside axis {} of {}", length, start, axis, describe());
  Tensor result = *this;
  result.shape_[axis] = length;
  check_packing("narrow", dtype_, result.shape_, strides_, start * stride(axis));
  result.data_ = offset_bytes(data_, start * stride(axis), dtype_);
  return result;
}

Tensor Tensor::select(int axis, std::int64_t index) const {
  const int drop = axis < 0 ? axis + rank() : axis;
  QUENCH_CHECK(index >= 0 && index < size(axis), "select: {} outside axis {} of {}", index, axis, describe());
  Tensor result = *this;
  result.data_ = offset_bytes(data_, index * stride(drop), dtype_);
  Shape shape, strides;
  for (int i = 0; i < rank(); ++i) {
    if (i == drop) continue;
    shape.push_back(shape_[i]);
    strides.push_back(strides_[i]);
  }
  check_packing("select", dtype_, shape, strides, index * stride(drop));
  result.shape_ = shape;
  result.strides_ = strides;
  return result;
}

Tensor Tensor::transpose(int a, int b) const {
  Tensor result = *this;
  std::swap(result.shape_[a], result.shape_[b]);
  std::swap(result.strides_[a], result.strides_[b]);
  check_packing("transpose", dtype_, result.shape_, result.strides_, 0);
  return result;
}

Tensor Tensor::strided(const Shape& shape, const Shape& strides, std::int64_t offset) const {
  QUENCH_CHECK(is_contiguous() && shape.rank() == strides.rank(), "strided: needs a contiguous tensor and equal ranks");
  // First and last reachable element; strides may be zero or negative.
  std::int64_t first = offset, last = offset;
  bool in_range = offset >= 0 && offset <= numel();
  for (int i = 0; shape.numel() > 0 && i < shape.rank(); ++i) {
    std::int64_t span = 0;
    in_range = in_range && !__builtin_mul_overflow(shape[i] - 1, strides[i], &span) &&
               !__builtin_add_overflow(span < 0 ? first : last, span, span < 0 ? &first : &last);
  }
  QUENCH_CHECK(in_range && (shape.numel() == 0 || (first >= 0 && last < numel())),
               "strided: shape {} with strides {} from element {} is outside {}", shape.to_string(),
               strides.to_string(), offset, describe());
  check_packing("strided", dtype_, shape, strides, offset);
  Tensor result = *this;
  result.data_ = offset_bytes(data_, offset, dtype_);
  result.shape_ = shape;
  result.strides_ = strides;
  return result;
}

Tensor Tensor::reinterpret(DType dtype) const {
  const int from = bit_width(dtype_), to = bit_width(dtype);
  Tensor result = *this;
  result.dtype_ = dtype;
  if (from == to) return result;
  QUENCH_CHECK(std::min(from, to) == 4 && std::max(from, to) == 8 && rank() > 0 && strides_[-1] == 1,
               "reinterpret: {} as {}", describe(), to_string(dtype));
  result.shape_[-1] = shape_[-1] * from / to;
  for (int i = 0; i < rank() - 1; ++i) result.strides_[i] = strides_[i] * from / to;
  return result;
}

Tensor Tensor::to(Device target) const {
  if (target == device()) return *this;
  QUENCH_CHECK(is_contiguous(), "to: {} is not contiguous", describe());
  Tensor result = empty(shape_, dtype_, target);
  result.copy_from(*this);
  return result;
}

Tensor Tensor::clone() const {
  QUENCH_CHECK(is_contiguous(), "clone: {} is not contiguous", describe());
  Tensor result = empty(shape_, dtype_, device());
  result.copy_from(*this);
  return result;
}

void Tensor::copy_from(const Tensor& source) {
  QUENCH_CHECK(shape_ == source.shape_ && dtype_ == source.dtype_ && is_contiguous() && source.is_contiguous(),
               "copy_from: {} into {}", source.describe(), describe());
  if (nbytes() == 0 || device().is_meta() || source.device().is_meta()) return;
  const Device owner = device().is_cpu() ? source.device() : device();  // the GPU orders the copy
  backend(owner.type).copy(data_, device(), source.data_, source.device(), nbytes(), current_stream(owner));
  if (device().is_cpu() && !source.device().is_cpu()) backend(owner.type).synchronize(current_stream(owner));
}

void Tensor::zero() {
  QUENCH_CHECK(is_contiguous(), "zero: {} is not contiguous", describe());
  if (nbytes() == 0 || device().is_meta()) return;
  backend(device().type).fill_zero(data_, nbytes(), current_stream(device()));
}

std::string Tensor::describe() const {
  if (!defined()) return "undefined tensor";
  return fmt::format("{}{} on {}", to_string(dtype_), shape_.to_string(), device().to_string());
}

void check_tensor(std::string_view op, std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype) {
  bool ok = tensor.defined() && tensor.dtype() == dtype && tensor.rank() == shape.rank();
  for (int i = 0; ok && i < shape.rank(); ++i) ok = shape[i] < 0 || shape[i] == tensor.size(i);
  QUENCH_CHECK(ok, "{}: {} is {}, expected {}{}", op, name, tensor.describe(), to_string(dtype), shape.to_string());
}

}  // namespace quench
