#include "train/step/balance_choices.h"

#include "core/ops/experts/choice_bias.h"
#include "nn/experts/moe.h"

namespace quench {

void balance_choices(nn::CausalLm& model, const nn::ExpertLoad& load, float speed) {
  model.visit([&](const std::string&, nn::Module& module) {
    auto* moe = dynamic_cast<nn::MoE*>(&module);
    nn::Parameter* bias = moe != nullptr ? moe->choice_bias() : nullptr;
    if (bias == nullptr) return;
    update_choice_bias({.counts = load.counts(moe->layer()),
                        .bias = bias->variable.value(),
                        .first = bias->shard.row_begin,
                        .speed = speed});
    bias->mark_changed();
  });
}

}  // namespace quench
