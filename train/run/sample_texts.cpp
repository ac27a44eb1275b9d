#include "train/run/sample_texts.h"

#include <algorithm>
#include <optional>

#include "core/number/random.h"
#include "core/system/log.h"
#include "core/system/utf8.h"
#include "data/tokenizer/stream_decoder.h"
#include "train/generation/generator.h"
#include "train/run/text_check.h"

namespace quench {

SampleTexts::SampleTexts(const RunConfig& config, const RunModel& model)
    : tokenizer_(model.tokenizer),
      stop_tokens_(model.generation_ids.eos),
      max_tokens_(config.evaluation.sample_tokens),
      temperature_(config.evaluation.sample_temperature),
      seed_(static_cast<std::uint64_t>(config.training.seed)) {
  const std::vector<std::string>& texts = config.evaluation.prompts;
  EncodedPrompts encoded = encode_prompts(config, model.config, tokenizer_.get());
  if (encoded.end_of_turn) stop_tokens_.push_back(*encoded.end_of_turn);
  for (std::size_t i = 0; i < texts.size(); ++i) prompts_.push_back({texts[i], std::move(encoded.ids[i])});
}

void SampleTexts::draw(const nn::CausalLm& model, std::int64_t step, MetricsLog& metrics,
                       const std::function<bool()>& stopped) const {
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const Prompt& prompt = prompts_[i];
    GenerationOptions options;
    options.max_new_tokens = std::min(max_tokens_, room_behind(model.config(), prompt.ids.size()));
    options.stop_tokens = stop_tokens_;
    options.sampling.temperature = temperature_;
    options.sampling.seed = random_block({seed_, hash64("sample_texts"), static_cast<std::uint64_t>(step)}, i)[0];
    bool generated = false;
    try {
      const GenerationResult result = generate(model, prompt.ids, options, [&](std::int32_t) { return !stopped(); });
      generated = true;
      if (stopped()) return;
      StreamDecoder decoder(*tokenizer_);
      decoder.skip(prompt.ids);
      std::string text;
      const std::size_t shown = result.tokens.size() - (result.stopped ? 1 : 0);
      for (const std::int32_t token : std::span(result.tokens).first(shown)) text += decoder.push(token);
      text += decoder.finish();
      metrics.sample({.step = step,
                      .prompt = replace_invalid_utf8(prompt.text),
                      .text = replace_invalid_utf8(text),
                      .tokens = result.tokens});
    } catch (const Error& error) {
      // With gathered weights the ranks' collectives must agree: all have the same logits, but one may be out of
      // memory.
      if (!generated && !model.weights_stay() && error.code() != ErrorCode::nonfinite) throw;
      QUENCH_LOG_WARN("evaluation.prompts[{}] cannot be continued at step {}: {}; training continues", i, step,
                      error.what());
    }
  }
}

}  // namespace quench
