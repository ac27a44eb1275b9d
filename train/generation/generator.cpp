#include "train/generation/generator.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/ops/argmax.h"
#include "core/tensor/host_copy.h"
#include "train/generation/decoder.h"

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The token with the largest logit, chosen on the device: the pass behind it is queued before the host has seen it.
class GreedyToken {
 public:
  explicit GreedyToken(const Tensor& logits) : found_(find(logits)), on_host_(found_) {}

  // i32 [1]
  [[nodiscard]] Tensor on_device() const { return found_.narrow(0, 0, 1); }
  // Waits for it. `position` is the number of tokens in front.
  [[nodiscard]] std::int32_t get(std::size_t position) const {
    const auto* found = on_host_.get().data<std::int32_t>();
    if (found[1] >= 0) fail_nonfinite_logit(found[1], static_cast<std::int64_t>(position));
    return found[0];
  }

 private:
  static Tensor find(const Tensor& logits) {
    const Tensor found = Tensor::empty({2}, DType::i32, logits.device());
    argmax({.x = logits, .index = found.narrow(0, 0, 1), .first_nonfinite = found.narrow(0, 1, 1)});
    return found;
  }

  Tensor found_;  // index, first that is not finite
  HostCopy on_host_;
};

bool is_greedy(const SamplingOptions& options) {
  return options.temperature == 0 && options.repetition_penalty == 1.0;
}

class Generation {
 public:
  Generation(const nn::CausalLm& model, std::span<const std::int32_t> prompt, const GenerationOptions& options,
             const std::function<bool(std::int32_t)>& on_token)
      : options_(options),
        on_token_(on_token),
        decoder_(model, static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens),
        seen_(prompt.begin(), prompt.end()) {}

  GenerationResult run() {
    if (options_.max_new_tokens == 0) return {};
    if (is_greedy(options_.sampling))
      greedy();
    else
      sampled();
    result_.decode_seconds = seconds_since(start_);
    return std::move(result_);
  }

 private:
  void greedy() {
    GreedyToken token(decoder_.logits(seen_));
    (void)token.get(seen_.size());
    begin_decoding();
    for (std::int64_t left = options_.max_new_tokens - 1; left >= 0; --left) {
      // A pass too many behind a token that ends the text.
      std::optional<GreedyToken> following;
      if (left > 0) following.emplace(decoder_.logits(token.on_device()));
      if (!accept(token.get(seen_.size())) || left == 0) return;
      token = std::move(*following);
    }
  }

  // The host draws from the logits.
  void sampled() {
    HostCopy logits(decoder_.logits(seen_));
    (void)logits.get();
    begin_decoding();
    for (std::int64_t left = options_.max_new_tokens - 1; left >= 0; --left) {
      const Tensor& row = logits.get();
      const std::int32_t token = sample_token(std::span(row.data<float>(), static_cast<std::size_t>(row.numel())),
                                              seen_, options_.sampling, static_cast<std::int64_t>(seen_.size()));
      if (!accept(token) || left == 0) return;
      logits = HostCopy(decoder_.logits(std::span(&token, 1)));
    }
  }

  void begin_decoding() {
    result_.prompt_seconds = seconds_since(start_);
    start_ = Clock::now();
  }

  // False where the text ends.
  bool accept(std::int32_t token) {
    result_.tokens.push_back(token);
    seen_.push_back(token);
    result_.stopped = std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end();
    return !result_.stopped && (!on_token_ || on_token_(token));
  }

  const GenerationOptions& options_;
  const std::function<bool(std::int32_t)>& on_token_;
  Decoder decoder_;
  std::vector<std::int32_t> seen_;
  GenerationResult result_;
  Clock::time_point start_ = Clock::now();  // of the prompt's pass, then of decoding
};

}  // namespace

std::int64_t room_behind(const nn::ModelConfig& model, std::size_t prompt_tokens) {
  return std::max<std::int64_t>(0, model.context_length() - static_cast<std::int64_t>(prompt_tokens));
}

GenerationResult generate(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                          const GenerationOptions& options, const std::function<bool(std::int32_t)>& on_token) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !prompt.empty(),
                  "the prompt is empty and the tokenizer adds no beginning-of-sequence token; give a prompt");
  check_sampling_options(options.sampling);
  const auto length = static_cast<std::int64_t>(prompt.size());
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.max_new_tokens <= room_behind(model.config(), prompt.size()),
                  "prompt of {} tokens and {} new ones exceed the model's context of {} (max_position_embeddings)",
                  length, options.max_new_tokens, model.config().context_length());
  return Generation(model, prompt, options, on_token).run();
}

}  // namespace quench
