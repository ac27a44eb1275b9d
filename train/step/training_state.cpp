#include "train/step/training_state.h"

#include <algorithm>
#include <memory>

#include "core/ops/elementwise.h"
#include "core/ops/optimizer/split_weights.h"
#include "nn/modules/slice_map.h"
#include "nn/optim/weight_average.h"

namespace quench {
namespace {

// Rows of this rank of the tensor `name`, which belongs to a parameter: its rows are sharded like the parameter's, and
// split like them or its columns; row length may differ (quantized values, scales).
std::vector<CheckpointTensor> entries(const std::string& name, const Tensor& tensor, const nn::Parameter& parameter) {
  Shape whole = tensor.shape();
  if (whole.rank() == 0) return {{name, whole, {parameter.shard.row_begin, parameter.shard.rows}, tensor, {}}};
  whole[0] = nn::whole_shape(parameter)[0];
  ShardSlice columns;
  if (const std::int64_t parts = parameter.slice.column_parts(); parts > 1) {
    QUENCH_CHECK(whole.rank() > 1, "checkpoint tensor '{}' is {}, but its weight is split by columns", name,
                 tensor.describe());
    columns = {parameter.slice.place.index * whole[1], whole[1]};
    whole[1] *= parts;
  }
  std::vector<CheckpointTensor> all;
  for (const nn::SliceRows& run : nn::own_rows_of(parameter))
    if (run.rows > 0 || columns.length == 0)
      all.push_back({name,
                     whole,
                     {run.whole_row, run.rows},
                     tensor.narrow(0, run.row - parameter.shard.row_begin, run.rows),
                     columns});
  return all;
}

// Reads this rank's part of the stored tensor `name` into `tensor` of a parameter, with dtype conversion.
void read_into(CheckpointReader& reader, const std::string& name, const Tensor& tensor,
               const nn::Parameter& parameter) {
  const DType stored = reader.at(name).dtype;
  for (const CheckpointTensor& part : entries(name, tensor, parameter)) {
    if (stored == part.data.dtype()) {
      reader.read(name, part.data, part.slice, part.columns);
      continue;
    }
    const Tensor same = Tensor::empty(part.data.shape(), stored, part.data.device());
    reader.read(name, same, part.slice, part.columns);
    cast({same, part.data});
  }
}

// f32 weights of a parameter: stored master weights, else the stored parameter.
void read_weights(CheckpointReader& reader, const nn::Parameter& parameter, const Tensor& into) {
  const std::string master = nn::Optimizer::master_name(parameter), low = nn::Optimizer::master_low_name(parameter);
  if (reader.find(low) == nullptr)
    return read_into(reader, reader.find(master) != nullptr ? master : parameter.name, into, parameter);
  const Tensor upper = Tensor::empty(into.shape(), DType::bf16), missing = Tensor::empty(into.shape(), DType::i16);
  read_into(reader, parameter.name, upper, parameter);
  read_into(reader, low, missing, parameter);
  Tensor(into).copy_from(join_weights(upper, missing));
}

std::string history_name(const recipes::DelayedScaling::LayerHistory& layer) {
  return "recipe.amax_history." + layer.name;
}

constexpr const char* kObjectiveState = "objective.state";

}  // namespace

std::vector<CheckpointTensor> training_tensors(nn::CausalLm& model, nn::Optimizer& optimizer) {
  std::vector<CheckpointTensor> all;
  const auto add = [&](const std::string& name, const Tensor& tensor, const nn::Parameter& parameter) {
    if (parameter.is_copy()) return;
    for (CheckpointTensor& part : entries(name, tensor, parameter)) all.push_back(std::move(part));
  };
  for (const nn::Parameter* p : model.parameters())
    if (p->in_checkpoints) add(p->name, p->variable.value(), *p);
  for (const auto& state : optimizer.state()) add(state.name, state.tensor, *state.parameter);
  return all;
}

void restore_training_tensors(CheckpointReader& reader, nn::CausalLm& model, nn::Optimizer& optimizer) {
  for (nn::Parameter* p : model.parameters()) {
    if (!p->in_checkpoints) continue;
    p->mark_changed();
    const Tensor value = p->variable.value();
    if (value.dtype() == DType::f32)
      read_weights(reader, *p, value);
    else
      read_into(reader, p->name, value, *p);
  }
  for (const auto& state : optimizer.state()) {
    const nn::Parameter& p = *state.parameter;
    const bool stored = reader.find(state.name) != nullptr;
    if (!stored && state.name == nn::Optimizer::master_low_name(p)) {
      const Tensor values = Tensor::empty(state.tensor.shape(), DType::f32);
      read_weights(reader, p, values);
      split_weights(values, p.variable.value(), state.tensor);
    } else if (!stored && state.name == nn::Optimizer::master_name(p)) {
      read_weights(reader, p, state.tensor);
    } else {
      read_into(reader, state.name, state.tensor, p);
    }
  }
}

void add_scaling(std::vector<CheckpointTensor>& tensors, const recipes::DelayedScaling& scaling) {
  for (const auto& layer : scaling.histories())
    tensors.push_back(CheckpointTensor::whole(history_name(layer), layer.amax));
}

void restore_scaling(CheckpointReader& reader, recipes::DelayedScaling& scaling) {
  for (auto& layer : scaling.histories()) {
    layer.amax.zero();
    const std::string name = history_name(layer);
    const TensorRecord* record = reader.find(name);
    if (record == nullptr) continue;
    QUENCH_CHECK_AS(ErrorCode::corrupt,
                    record->dtype == DType::f32 && record->shape.rank() == 2 &&
                        record->shape[0] == layer.amax.size(0) && record->shape[1] >= 1,
                    "{}: {} is {} {}, expected f32 [{}, steps]", reader.path().string(), name, to_string(record->dtype),
                    record->shape.to_string(), layer.amax.size(0));
    const Tensor stored = Tensor::empty(record->shape, DType::f32), own = Tensor::zeros(layer.amax.shape(), DType::f32);
    reader.read(name, stored);
    const std::int64_t steps = std::min(record->shape[1], own.size(1));
    copy_rows({stored.narrow(1, 0, steps), own.narrow(1, 0, steps)});
    layer.amax.copy_from(own);
  }
  scaling.restored();
}

void add_objective_state(std::vector<CheckpointTensor>& tensors, std::string_view state) {
  if (state.empty()) return;
  const MemoryScope scope(MemoryCategory::data);
  const Tensor bytes = Tensor::empty({std::ssize(state)}, DType::u8);
  std::ranges::copy(state, static_cast<char*>(bytes.raw_data()));
  tensors.push_back(CheckpointTensor::whole(kObjectiveState, bytes));
}

std::string objective_state(CheckpointReader& reader) {
  const TensorRecord* record = reader.find(kObjectiveState);
  if (record == nullptr) return {};
  QUENCH_CHECK_AS(ErrorCode::corrupt, record->dtype == DType::u8 && record->shape.rank() == 1,
                  "{}: {} is {} {}, expected bytes", reader.path().string(), kObjectiveState, to_string(record->dtype),
                  record->shape.to_string());
  const MemoryScope scope(MemoryCategory::data);
  const Tensor bytes = Tensor::empty(record->shape, DType::u8);
  reader.read(kObjectiveState, bytes);
  return {static_cast<const char*>(bytes.raw_data()), static_cast<std::size_t>(bytes.numel())};
}

void restore_parameters(CheckpointReader& reader, nn::CausalLm& model) {
  for (nn::Parameter* p : model.parameters()) {
    if (!p->in_checkpoints) continue;
    p->mark_changed();
    read_into(reader, p->name, p->variable.value(), *p);
  }
}

void require_averages(const CheckpointReader& reader) {
  const std::string prefix = nn::WeightAverage::name_of(nn::Parameter{});
  const bool has = std::ranges::any_of(reader.manifest().tensors,
                                       [&](const TensorRecord& record) { return record.name.starts_with(prefix); });
  QUENCH_CHECK_AS(ErrorCode::not_found, has, "{} has no averaged weights; only runs with training.ema_decay store them",
                  reader.path().string());
}

void restore_averages(CheckpointReader& reader, nn::CausalLm& model) {
  require_averages(reader);
  for (nn::Parameter* p : model.parameters()) {
    const std::string name = nn::WeightAverage::name_of(*p);
    if (reader.find(name) == nullptr) continue;
    p->mark_changed();
    read_into(reader, name, p->variable.value(), *p);
  }
}

void restore_mean(std::span<const std::filesystem::path> checkpoints, nn::CausalLm& model) {
  std::vector<std::unique_ptr<CheckpointReader>> readers;
  for (const std::filesystem::path& path : checkpoints) readers.push_back(std::make_unique<CheckpointReader>(path));
  const float share = 1.0f / static_cast<float>(readers.size());
  const MemoryScope scope(MemoryCategory::workspace);
  for (nn::Parameter* p : model.parameters()) {
    if (!p->in_checkpoints) continue;
    const Tensor sum = Tensor::zeros(p->global_shape, DType::f32), one = Tensor::empty(p->global_shape, DType::f32);
    for (const auto& reader : readers) {
      read_into(*reader, p->name, one, *p);
      accumulate({.x = one, .out = sum});
    }
    scale({.x = sum, .factor = share});
    cast({sum.to(p->variable.value().device()), p->variable.value()});
    p->mark_changed();
  }
}

}  // namespace quench
