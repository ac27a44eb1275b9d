#include "train/step/train_step.h"

namespace quench {
namespace {

// Rows of a table of the whole batch that belong to a part.
Tensor select_rows(const Tensor& whole, const std::vector<std::int32_t>& tokens) {
  if (whole.device().is_meta()) return Tensor::empty({std::ssize(tokens)}, whole.dtype(), whole.device());
  const Tensor all = whole.to(Device{});
  std::vector<std::int32_t> rows;
  for (const std::int32_t token : tokens) rows.push_back(all.data<std::int32_t>()[token]);
  return Tensor::from_values<std::int32_t>({std::ssize(rows)}, rows).to(whole.device());
}

}  // namespace

nn::ForwardContext batch_context(const nn::CausalLm& model, const Batch& batch) {
  const BatchPart* part = batch.part.get();
  const Batch& whole = whole_of(batch);
  const Tensor positions = whole.positions.view({whole.positions.numel()});
  if (part == nullptr) return model.make_context(whole.sequences, whole.prefixes, positions);
  const autograd::SequenceExchange* exchange = model.sequence_exchange();
  QUENCH_CHECK(exchange != nullptr && exchange->size() == part->part.count,
               "a part of {} of a batch, but the model exchanges keys with {} ranks", part->part.count,
               exchange != nullptr ? exchange->size() : 0);
  // Rotations may depend on the lengths of whole sequences.
  nn::ForwardContext context = model.make_context(whole.sequences, whole.prefixes, positions);
  const Device device = model.options().device;
  const MemoryScope scope(MemoryCategory::data);
  const bool by_position = context.rotation_rows.raw_data() == context.positions.raw_data();
  context.positions = batch.positions.view({batch.positions.numel()}).to(device);
  context.rotation_rows = by_position ? context.positions : select_rows(context.rotation_rows, part->tokens);
  context.sequences = batch.sequences;
  context.keys = {.rows = part->keys.to(device), .readers = part->readers.to(device), .exchange = exchange};
  return context;
}

}  // namespace quench
