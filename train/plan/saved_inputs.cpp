#include "train/plan/saved_inputs.h"

#include <algorithm>
#include <map>

#include "core/memory/allocator.h"
#include "nn/modules/linear.h"
#include "train/session/run_session.h"
#include "train/step/meta_batch.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

using autograd::Tape;
using recipes::SavedInput;

std::int64_t bytes_in_use() {
  return Allocator::of(kMeta).stats().current;
}

// Allocator-rounded bytes.
std::int64_t bytes_like(const Tensor& t) {
  const std::int64_t before = bytes_in_use();
  const Tensor same = Tensor::empty_like(t);
  return bytes_in_use() - before;
}

// Kernel wrapper that measures the tensors saved after its return.
class KeepingMeter final : public nn::LinearObserver {
 public:
  KeepingMeter(std::shared_ptr<const nn::LinearKernel> kernel, SavedInput& kept)
      : LinearObserver(std::move(kernel)), kept_(kept) {}

 private:
  [[nodiscard]] nn::Variable observe(const nn::Variable& x, const nn::Parameter& weight,
                                     const nn::Weight& bias) const override {
    const std::int64_t before = bytes_in_use();
    const long handles = x.value().handles();
    nn::Variable y = wrapped().apply(x, weight, bias);
    const bool holds_x = !x.value().is_exclusive(handles);
    const std::int64_t own = bytes_in_use() - before - bytes_like(y.value());
    if (Tape::current() == nullptr)
      kept_ = {own, SavedInput::Form::layer_recomputed};
    else if (holds_x && !x.fused().saved_by_producer())
      kept_ = {own + bytes_like(x.value()), SavedInput::Form::input};
    else if (holds_x)
      kept_ = {own, SavedInput::Form::saved_by_producer};
    else if (x.fused().recompute() != nullptr && Tape::current()->recompute() == autograd::Recompute::selective)
      kept_ = {own, SavedInput::Form::recomputed};
    else
      kept_ = {own, SavedInput::Form::codes};
    return y;
  }

  SavedInput& kept_;
};

std::map<std::string, SavedInput> saved_inputs(const ResolvedConfig& config, Device target) {
  std::map<std::string, SavedInput> kept;
  RunSession session(config, {.device = kMeta, .target = target});
  nn::CausalLm& model = session.model();
  model.visit([&](const std::string& name, nn::Module& module) {
    if (auto* linear = dynamic_cast<nn::Linear*>(&module); linear != nullptr && name != nn::kHeadName)
      linear->set_kernel(std::make_shared<KeepingMeter>(linear->shared_kernel(), kept[name]));
  });
  const Batch batch = meta_batch(config->training.micro_batch_size, config->data.seq_len);
  const std::int64_t tokens = batch.input_ids.numel();
  nn::ForwardContext context = batch_context(model, batch);
  context.recompute = recompute_level(config->training.activation_checkpoint);
  // Layers of multi-token prediction belong to the model, and run in their objective.
  const bool has_own_layers = session.model_config().mtp.layers > 0;
  if (has_own_layers) session.add_objective();
  // The second pass counts: the first creates the weights' cached tensors.
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape(context.recompute);
    const autograd::TapeScope scope(tape);
    const ObjectiveInput in{.batch = batch,
                            .ids = batch.input_ids.view({tokens}),
                            .labels = batch.labels.view({tokens}),
                            .context = context};
    if (has_own_layers)
      (void)session.objective()->training()->loss(in, 1.0f, session.loss(), {});
    else
      (void)model.loss(in.ids, in.labels, context, 1.0f, session.loss());
  }
  return kept;
}

}  // namespace

void measure_saved_inputs(std::vector<recipes::LayerConversion>& conversion, const ResolvedConfig& config,
                          Device target) {
  if (std::ranges::all_of(conversion, [](const auto& row) { return row.float8.empty(); })) return;
  const auto now = saved_inputs(config, target);
  RunConfig high_precision = *config;
  high_precision.recipe.name = recipes::kBf16.name;
  const auto then = saved_inputs(ResolvedConfig(high_precision), target);
  Allocator::of(kMeta).trim();
  for (recipes::LayerConversion& row : conversion) {
    if (row.float8.empty() || !now.contains(row.name)) continue;
    row.kept = now.at(row.name);
    row.kept_in_high_precision = then.at(row.name);
  }
}

}  // namespace quench
