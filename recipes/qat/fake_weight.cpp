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
    return fake_quantize(use.value(), format_, with_mask, used_scales(scales.value(), format_.integers));
  }
  if (!adapter_) return fake_quantize_each(use.value(), matrices, format_, with_mask);
  return fake_quantize(adapter_->added_to(use.value()), format_, false);
}

}  // namespace quench::recipes
