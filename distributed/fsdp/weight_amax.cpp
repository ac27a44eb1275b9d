#include "distributed/fsdp/weight_amax.h"

#include <algorithm>
#include <utility>

#include "core/ops/quantize/quantize.h"

namespace quench::distributed {

WeightAmax::WeightAmax(std::vector<nn::Parameter*> parameters, std::shared_ptr<ProcessGroup> group, Device device,
                       std::shared_ptr<ExposedCommTimer> clock)
    : group_(std::move(group)), device_(device), clock_(std::move(clock)) {
  for (nn::Parameter* parameter : parameters) {
    index_[parameter] = entries_.size();
    entries_.push_back({parameter});
  }
}

Tensor WeightAmax::place(std::size_t index) const {
  return amax_.narrow(0, static_cast<std::int64_t>(index), 1).view({});
}

void WeightAmax::refresh() {
  if (group_->size() == 1) return;  // no sharding
  bool changed = false;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    nn::Parameter& parameter = *entry.parameter;
    const bool kept_up =
        parameter.amax.defined() && parameter.version > 0 && parameter.amax_version == parameter.version;
    if (!kept_up && !entry.asked) continue;
    if (entry.reduced && entry.version == parameter.version) continue;
    if (!amax_.defined()) {
      const MemoryScope scope(MemoryCategory::parameters);
      amax_ = Tensor::zeros({static_cast<std::int64_t>(entries_.size())}, DType::f32, device_);
    }
    Tensor target = place(i);
    if (kept_up) {
      if (parameter.shard.rows == 0)
        target.zero();
      else if (parameter.amax.raw_data() != target.raw_data())
        target.copy_from(parameter.amax);
      parameter.amax = target;  // the optimizer writes here from now on
    } else {
      amax_slot(device_.type, {parameter.padded, target, Granularity::tensor});
    }
    entry.reduced = changed = true;
    entry.version = parameter.version;
  }
  if (!changed) return;
  for (Scales& scales : scales_) scales.values = Tensor();
  std::vector<Work> works;
  works.push_back(group_->all_reduce(amax_, ReduceOp::max, "magnitudes of the weights"));
  clock_->wait(works);
}

Tensor WeightAmax::scale(const nn::Parameter& parameter, const autograd::WeightFormat& form) {
  const std::size_t index = index_.at(&parameter);
  Entry& entry = entries_[index];
  entry.asked = true;
  if (!entry.reduced || entry.version != parameter.version) refresh();
  auto known = std::ranges::find_if(scales_, [&](const Scales& scales) {
    return scales.element == form.element && scales.power_of_two == form.power_of_two_scale;
  });
  if (known == scales_.end()) known = scales_.insert(known, {form.element, form.power_of_two_scale, {}});
  if (!known->values.defined()) known->values = float8_scale(amax_, form.element, form.power_of_two_scale);
  return known->values.narrow(0, static_cast<std::int64_t>(index), 1).view({});
}

}  // namespace quench::distributed
