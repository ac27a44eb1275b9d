#include "autograd/weight.h"

namespace quench::autograd {
namespace {

class LocalValues final : public WeightStorage {
 public:
  explicit LocalValues(Tensor value) : value_(std::move(value)) {}
  Tensor acquire() override { return value_; }
  void release() noexcept override {}

 private:
  Tensor value_;
};

class RowsOfStorage final : public WeightStorage {
 public:
  RowsOfStorage(std::shared_ptr<WeightStorage> whole, std::int64_t first, std::int64_t count)
      : whole_(std::move(whole)), first_(first), count_(count) {}
  Tensor acquire() override { return whole_->acquire().narrow(0, first_, count_); }
  void release() noexcept override { whole_->release(); }

 private:
  std::shared_ptr<WeightStorage> whole_;
  std::int64_t first_, count_;
};

}  // namespace

Weight::Weight(const Variable& variable) {
  if (!variable.defined()) return;
  const Tensor& value = variable.value();
  shape_ = value.shape();
  dtype_ = value.dtype();
  device_ = value.device();
  storage_ = std::make_shared<LocalValues>(value);
  gradient_ = variable.gradient();
}

Weight::Weight(const Shape& shape, DType dtype, Device device, std::shared_ptr<WeightStorage> storage,
               std::shared_ptr<Gradient> gradient)
    : shape_(shape), dtype_(dtype), device_(device), storage_(std::move(storage)), gradient_(std::move(gradient)) {}

Weight Weight::rows(std::int64_t first, std::int64_t count) const {
  QUENCH_CHECK(defined() && first >= 0 && count >= 0 && first + count <= shape_[0], "rows {} to {} of weight {}", first,
               first + count, describe());
  Shape shape = shape_;
  shape[0] = count;
  return {shape, dtype_, device_, std::make_shared<RowsOfStorage>(storage_, first, count),
          gradient_ ? std::make_shared<Gradient>(gradient_, first, count) : nullptr};
}

std::string Weight::describe() const {
  if (!defined()) return "undefined";
  return fmt::format("{}{} on {}", to_string(dtype_), shape_.to_string(), device_.to_string());
}

}  // namespace quench::autograd
