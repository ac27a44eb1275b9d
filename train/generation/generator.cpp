#include "train/generation/generator.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "autograd/tensor_parallel.h"
#include "core/ops/argmax.h"
#include "core/tensor/host_copy.h"
#include "train/generation/batch_generator.h"
#include "train/generation/decoder.h"

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Greedy token selected on the device: the next pass is queued before the host reads it.
class GreedyToken {
 public:
  explicit GreedyToken(const Tensor& logits) : found_(find(logits)), on_host_(found_) {}

  // i32 [1]
  [[nodiscard]] Tensor on_device() const { return found_.narrow(0, 0, 1); }
  // Synchronizes. `position`: number of preceding tokens.
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

  Tensor found_;  // index, first non-finite one
  HostCopy on_host_;
};

bool is_greedy(const SamplingOptions& options) {
  return options.temperature == 0 && options.repetition_penalty == 1.0;
}

class Generation {
 public:
  // The decoder holds a prefix of the prompt, or nothing.
  Generation(Decoder& decoder, std::span<const std::int32_t> prompt, const GenerationOptions& options,
             const std::function<bool(std::int32_t)>& on_token)
      : options_(options), on_token_(on_token), decoder_(decoder), seen_(prompt.begin(), prompt.end()) {}

  GenerationResult run() {
    if (options_.max_new_tokens == 0) return {};
    if (is_greedy(options_.sampling) && options_.grammar == nullptr)
      greedy();
    else
      sampled();
    result_.decode_seconds = seconds_since(start_);
    return std::move(result_);
  }
  // Prompt and generated tokens; the decoder holds all but at most the last.
  [[nodiscard]] std::vector<std::int32_t> take_text() { return std::move(seen_); }

 private:
  [[nodiscard]] Tensor prompt_logits() {
    return decoder_.logits(std::span(seen_).subspan(static_cast<std::size_t>(decoder_.length())));
  }

  void greedy() {
    GreedyToken token(prompt_logits());
    (void)token.get(seen_.size());
    begin_decoding();
    for (std::int64_t left = options_.max_new_tokens - 1; left >= 0; --left) {
      // One surplus pass after a stop token.
      std::optional<GreedyToken> following;
      if (left > 0) following.emplace(decoder_.logits(token.on_device()));
      if (!accept(token.get(seen_.size())) || left == 0) return;
      token = std::move(*following);
    }
  }

  // Sampling on the host.
  void sampled() {
    HostCopy logits(prompt_logits());
    (void)logits.get();
    begin_decoding();
    const std::unique_ptr<GrammarMatcher> matcher =
        options_.grammar != nullptr ? options_.grammar->begin(options_.stop_tokens) : nullptr;
    std::vector<std::int32_t> allowed(matcher != nullptr ? static_cast<std::size_t>((logits.get().numel() + 31) / 32)
                                                         : 0);
    for (std::int64_t left = options_.max_new_tokens - 1; left >= 0; --left) {
      if (matcher != nullptr && !matcher->find_allowed(allowed)) return end_of_grammar(*matcher);
      const Tensor& row = logits.get();
      const std::int32_t token =
          sample_token(std::span(row.data<float>(), static_cast<std::size_t>(row.numel())), seen_, options_.sampling,
                       static_cast<std::int64_t>(seen_.size()), allowed);
      if (!accept(token) || left == 0) return;
      if (matcher != nullptr) matcher->accept(token);
      logits = HostCopy(decoder_.logits(std::span(&token, 1)));
    }
  }

  void end_of_grammar(const GrammarMatcher& matcher) {
    QUENCH_CHECK(matcher.is_complete(), "no token of the vocabulary continues the text in its grammar");
    result_.stopped = true;
  }

  void begin_decoding() {
    result_.prompt_seconds = seconds_since(start_);
    start_ = Clock::now();
  }

  // False at the end of the text.
  bool accept(std::int32_t token) {
    result_.tokens.push_back(token);
    seen_.push_back(token);
    result_.stopped = std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end();
    return !result_.stopped && (!on_token_ || on_token_(token));
  }

  const GenerationOptions& options_;
  const std::function<bool(std::int32_t)>& on_token_;
  Decoder& decoder_;
  std::vector<std::int32_t> seen_;
  GenerationResult result_;
  Clock::time_point start_ = Clock::now();  // prompt pass, then decoding
};

}  // namespace

std::int64_t room_behind(const nn::ModelConfig& model, std::size_t prompt_tokens) {
  return std::max<std::int64_t>(0, model.context_length() - static_cast<std::int64_t>(prompt_tokens));
}

void check_generation(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                      const GenerationOptions& options) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !prompt.empty(),
                  "the prompt is empty and the tokenizer adds no beginning-of-sequence token; give a prompt");
  check_sampling_options(options.sampling);
  QUENCH_CHECK_AS(ErrorCode::bad_config, options.max_new_tokens <= room_behind(model.config(), prompt.size()),
                  "prompt of {} tokens and {} new ones exceed the model's context of {} (max_position_embeddings)",
                  prompt.size(), options.max_new_tokens, model.config().context_length());
}

namespace {

bool is_led(const nn::CausalLm& model) {
  return model.tensor_exchange() != nullptr && model.tensor_exchange()->is_led();
}

}  // namespace

GenerationSession::GenerationSession(const nn::CausalLm& model) : model_(model) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, !is_led(model),
                  "a conversation with slices of a model: take one process, or quench serve");
}
GenerationSession::~GenerationSession() = default;

GenerationResult GenerationSession::generate(std::span<const std::int32_t> prompt, const GenerationOptions& options,
                                             const std::function<bool(std::int32_t)>& on_token) {
  check_generation(model_, prompt, options);
  // Decoder state is unknown after an exception.
  std::unique_ptr<Decoder> decoder = std::move(decoder_);
  const std::vector<std::int32_t> seen = std::move(seen_);
  seen_.clear();
  const std::int64_t needed = static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens;
  if (decoder == nullptr || decoder->capacity() < needed) {
    const std::int64_t twice = decoder == nullptr ? 0 : 2 * decoder->capacity();
    decoder.reset();
    decoder = std::make_unique<Decoder>(
        model_, std::max(needed, std::min<std::int64_t>(twice, model_.config().context_length())));
    reused_ = 0;
  } else {
    // The last token must be run for its logits.
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(seen, prompt).in1 - seen.begin());
    reused_ = std::min(common, prompt.size() - 1);
    decoder->rewind(static_cast<std::int64_t>(reused_));
  }
  Generation generation(*decoder, prompt, options, on_token);
  GenerationResult result = generation.run();
  seen_ = generation.take_text();
  seen_.resize(static_cast<std::size_t>(std::min(static_cast<std::int64_t>(seen_.size()), decoder->length())));
  decoder_ = std::move(decoder);
  return result;
}

GenerationResult generate(const nn::CausalLm& model, std::span<const std::int32_t> prompt,
                          const GenerationOptions& options, const std::function<bool(std::int32_t)>& on_token) {
  if (is_led(model)) {  // by rank 0's engine
    check_generation(model, prompt, options);
    GenerationResult result;
    const BatchPrompt only{.tokens = {prompt.begin(), prompt.end()}, .max_new_tokens = options.max_new_tokens};
    const auto take = [&](std::size_t, const GenerationResult& end) { result = end; };
    if (on_token)
      generate_batch(model, {&only, 1}, options, 1, take,
                     [&](std::size_t, std::int32_t token) { return on_token(token); });
    else
      generate_batch(model, {&only, 1}, options, 1, take);
    return result;
  }
  return GenerationSession(model).generate(prompt, options, on_token);
}

}  // namespace quench
