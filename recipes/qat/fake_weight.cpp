#include "recipes/qat/fake_weight.h"

#include "recipes/qat/scale_parameter.h"

namespace quench::recipes {

using autograd::Weight;

FakeQuantized FakeWeight::get(const nn::Parameter& parameter, bool with_mask, std::int64_t matrices) {
  const std::uint64_t version = version_of(parameter);
  const void* address = parameter.variable.value().raw_data();
  if (keep_ && kept_.values.defined() && version_ == version && address_ == address) return kept_;
  const FakeQuantized made = make(parameter, with_mask || keep_, matrices);
  if (keep_) {
    kept_ = made;
    version_ = version;
    address_ = address;
  }
  return made;
}

FakeQuantized FakeWeight::of_experts(const nn::Parameter& parameter, bool with_mask,
                                     const autograd::TokenPermutation& rows) {
  const std::int64_t experts = rows.ends.size(0);
  if (rows.all_experts == 0) return get(parameter, with_mask, experts);
  if (!keep_) {
    const MemoryScope scope(MemoryCategory::workspace);
    return fake_quantize_each(rows.weight_of(parameter.weight()).acquire().value(), experts, format_, with_mask);
  }
  FakeQuantized all = get(parameter, with_mask, rows.all_experts);
  const std::int64_t of_each = all.values.size(0) / rows.all_experts;
  for (Tensor* tensor : {&all.values, &all.mask})
    if (tensor->defined()) *tensor = tensor->narrow(0, rows.first_expert * of_each, experts * of_each);
  return all;
}

std::uint64_t FakeWeight::version_of(const nn::Parameter& parameter) const {
  std::uint64_t version = parameter.version;
  if (scales_) version += scales_->version;
  if (!adapter_) return version;
  version += adapter_->a().version;
  for (std::size_t i = 0; i < adapter_->pieces().size(); ++i) version += adapter_->b(i).version;
  return version;
}

FakeQuantized FakeWeight::make(const nn::Parameter& parameter, bool with_mask, std::int64_t matrices) const {
  const MemoryScope scope(MemoryCategory::workspace);
  const Weight::Acquired use = parameter.weight().acquire();
  if (scales_) {
    const Weight::Acquired scales = scales_->weight().acquire();
    return fake_quantize(use.value(), format_, with_mask, in_f32(scales.value()));
  }
  if (!adapter_) return fake_quantize_each(use.value(), matrices, format_, with_mask);
  return fake_quantize(adapter_->added_to(use.value()), format_, false);
}

}  // namespace quench::recipes
