#include "train/step/update_in_backward.h"

#include <algorithm>

#include "core/ops/global_norm.h"

namespace quench {

UpdateInBackward::UpdateInBackward(nn::CausalLm& model, nn::Optimizer& optimizer, distributed::ShardedModel* sharded)
    : optimizer_(optimizer), sharded_(sharded), of_layer_(static_cast<std::size_t>(model.config().all_layers())) {
  std::map<const nn::Parameter*, std::size_t> places;
  for (const nn::Parameter* parameter : optimizer.parameters()) places.emplace(parameter, places.size());
  for (const nn::CausalLm::Unit& unit : model.units()) {
    if (unit.parameters.empty()) continue;
    std::vector<std::size_t> trained;
    for (const nn::Parameter* parameter : unit.parameters)
      if (const auto place = places.find(parameter); place != places.end()) trained.push_back(place->second);
    std::ranges::sort(trained);
    Parts parts;
    for (const std::size_t place : trained) {
      if (parts.empty() || parts_.back().range.end != place) {
        parts.push_back(parts_.size());
        parts_.push_back({.range = {place, place}});
      }
      ++parts_.back().range.end;
    }
    if (unit.layer >= 0)
      of_layer_[static_cast<std::size_t>(unit.layer)] = parts;
    else if (!of_unit_.empty() && model.config().mtp.layers == 0)  // MTP layers use the head once more
      of_head_.insert(of_head_.end(), parts.begin(), parts.end());
    of_unit_.emplace(unit.parameters.front(), std::move(parts));
  }
  const MemoryScope scope(MemoryCategory::optimizer);
  const Device device = model.options().device;
  norms_ = Tensor::zeros({static_cast<std::int64_t>(parts_.size())}, DType::f32, device);
  squared_norm_ = Tensor::empty({1}, DType::f64, device);
  scale_ = Tensor::empty({1}, DType::f32, device);
  if (sharded_ != nullptr) {
    sharded_->when_summed([this](std::span<nn::Parameter* const> unit) {
      if (!unit.empty()) update(of_unit_.at(unit.front()));
    });
    return;
  }
  hooks_.before_backward = [this](std::int64_t layer) {
    if (layer + 1 == std::ssize(of_layer_)) update(of_head_);
  };
  hooks_.after_backward = [this](std::int64_t layer) { update(of_layer_[static_cast<std::size_t>(layer)]); };
}

UpdateInBackward::~UpdateInBackward() {
  if (sharded_ != nullptr) sharded_->when_summed(nullptr);
}

void UpdateInBackward::begin(Update update) {
  update_ = std::move(update);
  norms_.zero();
  for (Part& part : parts_) part.updated = false;
}

void UpdateInBackward::update(const Parts& parts) {
  if (!update_) return;
  for (const std::size_t number : parts) {
    const nn::ParameterRange range = parts_[number].range;
    optimizer_.squared_grad_norm(squared_norm_, range);
    clip_scale({.squared_norm = squared_norm_,
                .norm = norms_.narrow(0, static_cast<std::int64_t>(number), 1),
                .scale = scale_});
    update_(range, number > 0 ? parts_[number - 1].range : nn::ParameterRange{}, scale_);
    parts_[number].updated = true;
  }
}

std::vector<nn::ParameterRange> UpdateInBackward::left() const {
  std::vector<nn::ParameterRange> ranges;
  for (const Part& part : parts_)
    if (!part.updated) ranges.push_back(part.range);
  return ranges;
}

}  // namespace quench
