#pragma once
// A weight as differentiable functions see it: a handle to values that may be elsewhere between uses.
//
// A function acquires values before it queues work that reads them and releases them when the last of it is queued. Its
// backward function keeps the handle and acquires them again. Between uses the storage may shard the values, hold them
// in host memory, or store them in another format.

#include <memory>
#include <utility>

#include "autograd/variable.h"

namespace quench::autograd {

// Format of a float8 matrix in natural orientation, as of quantize_float8 (core/ops/quantize/quantize.h), that a GEMM
// may read in place of values.
struct WeightFormat {
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;  // tensor, row or column
  bool power_of_two_scale = false;
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Storage of a weight's values.
class WeightStorage {
 public:
  virtual ~WeightStorage() = default;
  // Values of the weight's shape and dtype on its device, for work queued on the current stream until release(). Uses
  // may nest. Throws what gathering the values may throw.
  [[nodiscard]] virtual Tensor acquire() = 0;
  // The values quantized, from a storage that gathers them so. Undefined, and nothing is acquired, if it does not: the
  // caller quantizes the values.
  [[nodiscard]] virtual QuantTensor acquire_quantized(const WeightFormat& /*form*/) { return {}; }
  // Ends one use: one call for each acquired tensor.
  virtual void release() noexcept = 0;
};

class Weight {
 public:
  Weight() = default;  // undefined: an absent bias
  // Values that stay where they are. Implicit: every variable is a weight.
  Weight(const Variable& variable);  // NOLINT(google-explicit-constructor)
  // `gradient` is null for a frozen weight.
  Weight(const Shape& shape, DType dtype, Device device, std::shared_ptr<WeightStorage> storage,
         std::shared_ptr<Gradient> gradient);

  [[nodiscard]] bool defined() const noexcept { return storage_ != nullptr; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] bool requires_grad() const noexcept { return gradient_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<Gradient>& gradient() const noexcept { return gradient_; }
  // "bf16[4096, 1024] on cuda:0", for messages.
  [[nodiscard]] std::string describe() const;

  // Values, as long as this object lives.
  class Acquired {
   public:
    explicit Acquired(std::shared_ptr<WeightStorage> storage) : storage_(std::move(storage)) {
      if (storage_) value_ = storage_->acquire();
    }
    Acquired(Acquired&& other) noexcept
        : storage_(std::exchange(other.storage_, nullptr)), value_(std::exchange(other.value_, Tensor())) {}
    Acquired& operator=(Acquired&&) = delete;
    ~Acquired() {
      value_ = Tensor();
      if (storage_) storage_->release();
    }
    // Undefined for an undefined weight.
    [[nodiscard]] const Tensor& value() const noexcept { return value_; }

   private:
    std::shared_ptr<WeightStorage> storage_;
    Tensor value_;
  };
  [[nodiscard]] Acquired acquire() const { return Acquired(storage_); }

  // Quantized values, as long as this object lives.
  class AcquiredQuantized {
   public:
    AcquiredQuantized() = default;  // none
    AcquiredQuantized(std::shared_ptr<WeightStorage> storage, const WeightFormat& form) {
      codes_ = storage->acquire_quantized(form);
      if (codes_.defined()) storage_ = std::move(storage);
    }
    AcquiredQuantized(AcquiredQuantized&& other) noexcept
        : storage_(std::exchange(other.storage_, nullptr)), codes_(std::exchange(other.codes_, QuantTensor())) {}
    AcquiredQuantized& operator=(AcquiredQuantized&&) = delete;
    ~AcquiredQuantized() {
      codes_ = QuantTensor();
      if (storage_) storage_->release();
    }
    // Undefined if the storage has values only.
    [[nodiscard]] const QuantTensor& codes() const noexcept { return codes_; }

   private:
    std::shared_ptr<WeightStorage> storage_;
    QuantTensor codes_;
  };
  [[nodiscard]] AcquiredQuantized acquire_quantized(const WeightFormat& form) const { return {storage_, form}; }

 private:
  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_;
  std::shared_ptr<WeightStorage> storage_;
  std::shared_ptr<Gradient> gradient_;
};

}  // namespace quench::autograd
