#pragma once
// Texts that a run generates after evaluations (evaluation.prompts).

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/decoder/causal_lm.h"
#include "train/config/run_config.h"
#include "train/metrics/metrics_log.h"
#include "train/record/run_model.h"

namespace quench {

class SampleTexts {
 public:
  // Throws bad_config for an unusable prompt: no tokenizer or chat template, no tokens, context length reached.
  SampleTexts(const RunConfig& config, const RunModel& model);

  // One continuation per prompt, deterministic in training.seed, step and prompt index. Does not modify the model. A
  // text ended by `stopped` is not recorded. Non-finite logits are a warning, and so are other failures unless weights
  // are gathered, where ranks would part.
  void draw(const nn::CausalLm& model, std::int64_t step, MetricsLog& metrics,
            const std::function<bool()>& stopped) const;

 private:
  struct Prompt {
    std::string text;
    std::vector<std::int32_t> ids;
  };

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<Prompt> prompts_;
  std::vector<std::int64_t> stop_tokens_;
  std::int64_t max_tokens_;
  double temperature_;
  std::uint64_t seed_;
};

}  // namespace quench
