#pragma once
// A weight as differentiable functions see it: a handle to values that may be elsewhere between uses.
//
// A function asks for values before it queues work that reads them and gives them back when the last of it is queued.
// Its backward function keeps the handle and asks again. Nobody keeps the bytes, so whoever owns them may gather them
// from shards, hold them in host memory, or store them in another form.

#include <memory>
#include <utility>

#include "autograd/variable.h"

namespace quench::autograd {

// Float8 codes of a matrix in natural orientation, as quantize_float8 makes them (core/ops/quantize/quantize.h): what a
// product may read in place of values.
struct WeightCodes {
  ElementFormat element = ElementFormat::e4m3;
  Granularity granularity = Granularity::tensor;  // tensor, row or column
  bool power_of_two_scale = false;
  friend bool operator==(const WeightCodes&, const WeightCodes&) = default;
};

// Where a weight's values come from.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Values of the weight's shape and dtype on its device, for work queued on the current stream until done(). Uses may
  // nest. Throws what bringing the values may throw.
  [[nodiscard]] virtual Tensor request() = 0;
  // The same for codes of the values, for a source that brings them in fewer bytes. Undefined, and no use has begun,
  // where it does not: the caller makes them of the values.
  [[nodiscard]] virtual QuantTensor request_codes(const WeightCodes& /*form*/) { return {}; }
  // One use ends: as many calls as requests.
  virtual void done() noexcept = 0;
};

class Weight {
 public:
  Weight() = default;  // undefined: an absent bias
  // Values that stay where they are. Implicit: every variable is a weight.
  Weight(const Variable& variable);  // NOLINT(google-explicit-constructor)
  // `gradient` is null for a frozen weight.
  Weight(const Shape& shape, DType dtype, Device device, std::shared_ptr<WeightSource> source,
         std::shared_ptr<Gradient> gradient);

  [[nodiscard]] bool defined() const noexcept { return source_ != nullptr; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] bool requires_grad() const noexcept { return gradient_ != nullptr; }
  [[nodiscard]] const std::shared_ptr<Gradient>& gradient() const noexcept { return gradient_; }
  // "bf16[4096, 1024] on cuda:0", for messages.
  [[nodiscard]] std::string describe() const;

  // Values, as long as this object lives.
  class Use {
   public:
    explicit Use(std::shared_ptr<WeightSource> source) : source_(std::move(source)) {
      if (source_) value_ = source_->request();
    }
    Use(Use&& other) noexcept
        : source_(std::exchange(other.source_, nullptr)), value_(std::exchange(other.value_, Tensor())) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      value_ = Tensor();
      if (source_) source_->done();
    }
    // Undefined for an undefined weight.
    [[nodiscard]] const Tensor& value() const noexcept { return value_; }

   private:
    std::shared_ptr<WeightSource> source_;
    Tensor value_;
  };
  [[nodiscard]] Use use() const { return Use(source_); }

  // Codes, as long as this object lives.
  class CodesUse {
   public:
    CodesUse() = default;  // none
    CodesUse(std::shared_ptr<WeightSource> source, const WeightCodes& form) {
      codes_ = source->request_codes(form);
      if (codes_.defined()) source_ = std::move(source);
    }
    CodesUse(CodesUse&& other) noexcept
        : source_(std::exchange(other.source_, nullptr)), codes_(std::exchange(other.codes_, QuantTensor())) {}
    CodesUse& operator=(CodesUse&&) = delete;
    ~CodesUse() {
      codes_ = QuantTensor();
      if (source_) source_->done();
    }
    // Undefined where the source has values only.
    [[nodiscard]] const QuantTensor& codes() const noexcept { return codes_; }

   private:
    std::shared_ptr<WeightSource> source_;
    QuantTensor codes_;
  };
  [[nodiscard]] CodesUse use_codes(const WeightCodes& form) const { return {source_, form}; }

 private:
  Shape shape_;
  DType dtype_ = DType::f32;
  Device device_;
  std::shared_ptr<WeightSource> source_;
  std::shared_ptr<Gradient> gradient_;
};

}  // namespace quench::autograd
