#pragma once
// Handle to a weight, which may be sharded, offloaded or quantized between uses. Values are acquired before queueing
// work that reads them and released after it, again in the backward pass.

#include <memory>
#include <utility>

#include "autograd/variable.h"

namespace quench::autograd {

// Float8 format of a matrix as stored, as of quantize_float8().
struct WeightFormat {
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;  // tensor, row or column
  bool power_of_two_scale = false;
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// Interface of a weight's storage.
class WeightStorage {
 public:
  virtual ~WeightStorage() = default;
  // Values on the weight's device, valid for work queued on the current stream until release(). Nests. Throws errors of
  // the all-gather.
  [[nodiscard]] virtual Tensor acquire() = 0;
  // Quantized values, if the storage gathers or makes them so. Otherwise undefined, and nothing is acquired. `wanted`:
  // of the payload; a storage may have the natural one only.
  [[nodiscard]] virtual QuantTensor acquire_quantized(const WeightFormat& /*form*/, Orientation /*wanted*/) {
    return {};
  }
  // One call per acquired tensor.
  virtual void release() noexcept = 0;
};

class Weight {
 public:
  Weight() = default;  // undefined: an absent bias
  // Implicit: every variable is a weight.
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

  // Scope in which the values are on the weight's device.
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
    [[nodiscard]] const Tensor& value() const noexcept { return value_; }

   private:
    std::shared_ptr<WeightStorage> storage_;
    Tensor value_;
  };
  [[nodiscard]] Acquired acquire() const { return Acquired(storage_); }

  // The same for quantized values.
  class AcquiredQuantized {
   public:
    AcquiredQuantized() = default;  // none
    AcquiredQuantized(std::shared_ptr<WeightStorage> storage, const WeightFormat& form, Orientation wanted) {
      codes_ = storage->acquire_quantized(form, wanted);
      if (codes_.defined()) storage_ = std::move(storage);
    }
    AcquiredQuantized(AcquiredQuantized&& other) noexcept
        : storage_(std::exchange(other.storage_, nullptr)), codes_(std::exchange(other.codes_, QuantTensor())) {}
    AcquiredQuantized& operator=(AcquiredQuantized&&) = delete;
    ~AcquiredQuantized() {
      codes_ = QuantTensor();
      if (storage_) storage_->release();
    }
    [[nodiscard]] const QuantTensor& codes() const noexcept { return codes_; }

   private:
    std::shared_ptr<WeightStorage> storage_;
    QuantTensor codes_;
  };
  [[nodiscard]] AcquiredQuantized acquire_quantized(const WeightFormat& form,
                                                    Orientation wanted = Orientation::natural) const {
    return {storage_, form, wanted};
  }

 private:
  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_;
  std::shared_ptr<WeightStorage> storage_;
  std::shared_ptr<Gradient> gradient_;
};

}  // namespace quench::autograd
