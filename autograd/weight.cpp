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

std::string Weight::describe() const {
  if (!defined()) return "undefined";
  return fmt::format("{}{} on {}", to_string(dtype_), shape_.to_string(), device_.to_string());
}

}  // namespace quench::autograd
