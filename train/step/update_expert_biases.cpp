#include "train/step/update_expert_biases.h"

#include "core/ops/experts/expert_bias.h"
#include "nn/experts/moe.h"

namespace quench {

void update_expert_biases(nn::CausalLm& model, const nn::ExpertLoad& load, float speed) {
  model.visit([&](const std::string&, nn::Module& module) {
    auto* moe = dynamic_cast<nn::MoE*>(&module);
    nn::Parameter* bias = moe != nullptr ? moe->expert_bias() : nullptr;
    if (bias == nullptr || bias->frozen) return;
    update_expert_bias({.counts = load.counts(moe->layer()),
                        .bias = bias->variable.value(),
                        .first = bias->shard.row_begin,
                        .speed = speed});
    bias->mark_changed();
  });
}

}  // namespace quench
