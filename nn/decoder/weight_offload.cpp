#include "nn/decoder/weight_offload.h"

#include <algorithm>

namespace quench::nn {
namespace {

// A whole weight. `in_layer`: stays on the device until the layer's hook drops it.
class HostWeight final : public autograd::WeightStorage {
 public:
  HostWeight(std::shared_ptr<OffloadedTensor> tensor, Stream link, bool in_layer)
      : tensor_(std::move(tensor)), link_(link), in_layer_(in_layer) {}

  [[nodiscard]] Tensor acquire() override {
    ++users_;
    return tensor_->get(link_);
  }
  void release() noexcept override {
    if (--users_ > 0 || in_layer_) return;
    try {
      tensor_->drop_device_copy();
    } catch (const Error&) {
      // Device lost; the next device call reports it.
    }
  }

 private:
  std::shared_ptr<OffloadedTensor> tensor_;
  Stream link_;
  bool in_layer_;
  int users_ = 0;
};

}  // namespace

WeightOffloader::WeightOffloader(CausalLm& model)
    : model_(model),
      device_(model.options().device),
      link_(backend(device_.type).create_stream(device_)),
      layers_(static_cast<std::size_t>(model.config().num_hidden_layers)) {
  if (const CausalLm::Unit first = model.units().front(); first.makes_logits) tied_table_ = first.parameters.front();
  hooks_.before_forward = [this](std::int64_t layer) { before_forward(layer); };
  hooks_.after_forward = [this](std::int64_t layer) { after_forward(layer); };
  model_.add_unit_hooks(&hooks_);
}

WeightOffloader::~WeightOffloader() {
  model_.remove_unit_hooks(&hooks_);
  layers_.clear();
  backend(device_.type).destroy_stream(link_);
}

void WeightOffloader::offload(Parameter& parameter, std::int64_t layer) {
  const bool shard = parameter.padded.defined();
  QUENCH_CHECK(!parameter.variable.requires_grad() && (shard ? layer >= 0 : !parameter.whole.defined()),
               "WeightOffloader: {} is trained, kept elsewhere already, or a shard outside the layers", parameter.name);
  Tensor value = shard ? std::exchange(parameter.padded, Tensor()) : parameter.variable.value();
  const Shape shape = value.shape();
  const DType dtype = value.dtype();
  const auto bytes = static_cast<std::int64_t>(value.nbytes());
  parameter.variable = Variable(Tensor::empty({0}, dtype, device_));
  if (bytes == 0) return;
  const auto tensor = std::make_shared<OffloadedTensor>(std::move(value), MemoryCategory::parameters, link_);
  tensor->drop_device_copy();
  host_bytes_ += bytes;
  if (layer >= 0) {
    layers_[static_cast<std::size_t>(layer)].push_back({tensor, shard ? &parameter : nullptr, bytes});
    layer_bytes_ += bytes;
  } else {
    largest_other_ = std::max(largest_other_, bytes);
    exposed_bytes_ += &parameter == tied_table_ ? 2 * bytes : bytes;
  }
  if (shard) return;
  parameter.whole = Weight(shape, dtype, device_, std::make_shared<HostWeight>(tensor, link_, layer >= 0), nullptr);
  parameter.mark_changed();
}

std::int64_t WeightOffloader::device_bytes() const {
  std::int64_t most = largest_other_;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    std::int64_t bytes = 0;
    for (std::size_t ahead = 0; ahead < 3 && layer + ahead < layers_.size(); ++ahead)
      for (const Entry& entry : layers_[layer + ahead])
        if (ahead < 2 || entry.shard != nullptr) bytes += entry.bytes;
    most = std::max(most, bytes);
  }
  return most;
}

void WeightOffloader::prefetch(std::int64_t layer, bool shards) {
  if (!has_layer(layer)) return;
  for (const Entry& entry : layers_[static_cast<std::size_t>(layer)])
    if (shards == (entry.shard != nullptr)) entry.tensor->prefetch(link_);
}

void WeightOffloader::before_forward(std::int64_t layer) {
  for (std::int64_t l = layer; l <= layer + 1; ++l) prefetch(l, false);
  for (std::int64_t l = layer; l <= layer + 2; ++l) prefetch(l, true);
  for (std::int64_t l = layer; l <= layer + 1 && has_layer(l); ++l)
    for (const Entry& entry : layers_[static_cast<std::size_t>(l)])
      if (entry.shard != nullptr) entry.shard->padded = entry.tensor->get(link_);
}

void WeightOffloader::after_forward(std::int64_t layer) {
  for (const Entry& entry : layers_[static_cast<std::size_t>(layer)]) {
    if (entry.shard != nullptr) entry.shard->padded = Tensor();
    entry.tensor->drop_device_copy();
  }
}

}  // namespace quench::nn
