#pragma once
// Texts that a run's model continues at every evaluation, to see what it has learnt.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/causal_lm.h"
#include "train/config/run_config.h"
#include "train/metrics/metrics_log.h"
#include "train/setup/run_model.h"

namespace quench {

class SampleTexts {
 public:
  // Encodes evaluation.prompts. Throws bad_config for a prompt that cannot be continued: no tokenizer, no token, or as
  // long as the model's context.
  SampleTexts(const RunConfig& config, const RunModel& model);

  // Records one continuation of each prompt. The draws depend on training.seed, the step and the prompt's number alone.
  // Changes nothing in the model. A text that `stopped` ends is not recorded. What cannot be generated (logits that are
  // not finite, no memory left) is a warning, no end of the run.
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
