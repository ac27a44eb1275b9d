#pragma once
// Typed, strided view of a storage.
//
// Copies and views share and keep alive the storage. Packed 4-bit types need a contiguous, even last axis.

#include <memory>
#include <string>

#include "core/memory/storage.h"
#include "core/number/dtype.h"
#include "core/tensor/shape.h"

namespace quench {

class Tensor {
 public:
  Tensor() = default;  // undefined

  // Uninitialized, contiguous; MemoryScope's category.
  static Tensor empty(const Shape& shape, DType dtype, Device device = {});
  static Tensor zeros(const Shape& shape, DType dtype, Device device = {});
  // Pinned for asynchronous copies with GPU `peer`; pageable for other peers.
  static Tensor empty_pinned(const Shape& shape, DType dtype, Device peer);
  static Tensor empty_like(const Tensor& other) { return empty(other.shape(), other.dtype(), other.device()); }
  // Host bytes must outlive the tensor.
  static Tensor from_host(void* data, const Shape& shape, DType dtype);
  template <class T>
  static Tensor from_values(const Shape& shape, std::span<const T> values);  // CPU copy

  [[nodiscard]] bool defined() const noexcept { return storage_ != nullptr; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] const Shape& strides() const noexcept { return strides_; }  // in elements
  [[nodiscard]] std::int64_t size(int axis) const { return shape_[axis]; }
  [[nodiscard]] std::int64_t stride(int axis) const { return strides_[axis]; }
  [[nodiscard]] int rank() const noexcept { return shape_.rank(); }
  [[nodiscard]] std::int64_t numel() const { return shape_.numel(); }
  [[nodiscard]] std::size_t nbytes() const;  // rounded up to whole bytes
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const { return storage_ ? storage_->device() : Device{}; }
  [[nodiscard]] bool is_contiguous() const;
  [[nodiscard]] const std::shared_ptr<Storage>& storage() const noexcept { return storage_; }
  // Number of tensors that share the storage, views included; 0 if undefined.
  [[nodiscard]] long handles() const noexcept { return storage_.use_count(); }
  // Whether the caller may overwrite or keep the storage: only the `own` handles that it knows of share it, this tensor
  // among them. Holds as long as the caller makes no copy; one thread owns the handles of a storage.
  [[nodiscard]] bool is_exclusive(long own = 1) const noexcept { return handles() <= own; }

  [[nodiscard]] void* raw_data() const noexcept { return data_; }
  // Throws if T is not the dtype.
  template <class T>
  [[nodiscard]] T* data() const {
    QUENCH_CHECK(dtype_ == dtype_of<T>, "tensor of dtype {} read as {}", to_string(dtype_), to_string(dtype_of<T>));
    return static_cast<T*>(data_);
  }

  // Views. Negative axes count from the end.
  [[nodiscard]] Tensor view(const Shape& shape) const;  // contiguous only; same numel
  [[nodiscard]] Tensor narrow(int axis, std::int64_t start, std::int64_t length) const;
  [[nodiscard]] Tensor select(int axis, std::int64_t index) const;  // drops the axis
  [[nodiscard]] Tensor transpose(int a, int b) const;
  [[nodiscard]] Tensor strided(const Shape& shape, const Shape& strides, std::int64_t offset) const;  // bounds-checked
  [[nodiscard]] Tensor reinterpret(DType dtype) const;  // same width; or packed 4-bit to and from bytes [.., n / 2]

  [[nodiscard]] Tensor to(Device device) const;
  [[nodiscard]] Tensor clone() const;    // contiguous, same device
  void copy_from(const Tensor& source);  // same shape and dtype, both contiguous, any devices
  void zero();                           // contiguous only

  [[nodiscard]] std::string describe() const;  // "f32[2, 3] on cpu"

 private:
  static Tensor contiguous(std::shared_ptr<Storage> storage, const Shape& shape, DType dtype);

  std::shared_ptr<Storage> storage_;
  void* data_ = nullptr;
  Shape shape_;
  Shape strides_;
  DType dtype_ = DType::f32;
};

// Throws invalid_argument "<op>: <name> is f32[2, 3] on cpu, expected ..."; dimension -1 matches any size.
void check_tensor(std::string_view op, std::string_view name, const Tensor& tensor, const Shape& shape, DType dtype);

template <class T>
Tensor Tensor::from_values(const Shape& shape, std::span<const T> values) {
  QUENCH_CHECK(shape.numel() == static_cast<std::int64_t>(values.size()), "from_values: {} values for shape {}",
               values.size(), shape.to_string());
  Tensor result = empty(shape, dtype_of<T>);
  std::copy(values.begin(), values.end(), result.data<T>());
  return result;
}

}  // namespace quench
