#include "train/training_state.h"

namespace quench {
namespace {

CheckpointTensor entry(std::string name, const Tensor& tensor, const nn::Parameter& parameter) {
  return {std::move(name), parameter.global_shape, {parameter.shard.row_begin, parameter.shard.rows}, tensor};
}

void read_into(CheckpointReader& reader, const CheckpointTensor& tensor) {
  reader.read(tensor.name, tensor.data, tensor.slice);
}

}  // namespace

std::vector<CheckpointTensor> training_tensors(nn::CausalLm& model, const nn::Optimizer& optimizer) {
  std::vector<CheckpointTensor> all;
  for (const nn::Parameter* p : model.parameters()) all.push_back(entry(p->name, p->variable.value(), *p));
  for (const auto& state : optimizer.state()) all.push_back(entry(state.name, state.tensor, *state.parameter));
  return all;
}

void restore_training_tensors(CheckpointReader& reader, nn::CausalLm& model, nn::Optimizer& optimizer) {
  for (nn::Parameter* p : model.parameters()) p->mark_changed();
  for (const CheckpointTensor& tensor : training_tensors(model, optimizer)) read_into(reader, tensor);
}

void restore_parameters(CheckpointReader& reader, nn::CausalLm& model) {
  for (nn::Parameter* p : model.parameters()) {
    p->mark_changed();
    read_into(reader, entry(p->name, p->variable.value(), *p));
  }
}

}  // namespace quench
