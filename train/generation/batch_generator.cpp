#include "train/generation/batch_generator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <optional>

#include "core/ops/elementwise.h"
#include "core/tensor/host_copy.h"

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;

// KV caches of several texts in one cache: text i has rows [i * R, (i + 1) * R), R rows per text. Positions count these
// rows; the RoPE table repeats the rows of one text.
class SharedCache {
 public:
  SharedCache(const nn::CausalLm& model, std::int64_t width, std::int64_t capacity)
      : model_(model), width_(width), capacity_(capacity), cache_(model.make_cache(width * capacity)) {
    // Builds the full table once instead of token by token.
    (void)model.make_context({{0, 0, 0, capacity}}, 0);
  }

  // Consecutive tokens of a text, after `length` cached tokens.
  struct Stretch {
    std::int64_t text = 0, length = 0;
    std::span<const std::int32_t> tokens;
  };

  // f32 [stretches, V]: logits after each stretch, on the host.
  HostCopy logits(std::span<const Stretch> stretches) {
    const autograd::NoGrad no_grad;
    std::int64_t total = 0, longest = 0;
    for (const Stretch& s : stretches) {
      total += static_cast<std::int64_t>(s.tokens.size());
      longest = std::max(longest, s.length + static_cast<std::int64_t>(s.tokens.size()));
    }
    const Device device = model_.options().device;
    const Tensor ids = Tensor::empty_pinned({total}, DType::i32, device),
                 rows = Tensor::empty_pinned({total}, DType::i32, device);
    std::vector<SequenceRange> sequences;
    std::int64_t at = 0;
    for (const Stretch& s : stretches) {
      const auto count = static_cast<std::int64_t>(s.tokens.size());
      std::ranges::copy(s.tokens, ids.data<std::int32_t>() + at);
      for (std::int64_t i = 0; i < count; ++i)
        rows.data<std::int32_t>()[at + i] = static_cast<std::int32_t>(s.text * capacity_ + s.length + i);
      sequences.push_back({at, count, s.text * capacity_, s.length + count});
      at += count;
    }
    nn::ForwardContext context = model_.make_context({{0, 0, 0, longest}}, rows);
    context.rotations = repeated(context.rotations);
    context.sequences = std::move(sequences);
    context.cache = &cache_;
    const Tensor hidden = model_.hidden(ids.to(device), context).value();
    const Tensor last =
        Tensor::empty({static_cast<std::int64_t>(stretches.size()), hidden.size(1)}, hidden.dtype(), hidden.device());
    for (std::size_t i = 0; i < stretches.size(); ++i) {
      const SequenceRange& s = context.sequences[i];
      last.narrow(0, static_cast<std::int64_t>(i), 1).copy_from(hidden.narrow(0, s.q_begin + s.q_length - 1, 1));
    }
    return HostCopy(model_.logits(autograd::Variable(last)));
  }

 private:
  // The model returns other tables for other angles.
  const std::shared_ptr<const nn::LayerTables>& repeated(const std::shared_ptr<const nn::LayerTables>& tables) {
    if (original_ == tables) return repeated_;
    const auto repeat = [&](const Tensor& one) {
      const std::int64_t rows = std::min(capacity_, one.size(0));
      const Tensor all = Tensor::zeros({width_ * capacity_, one.size(1)}, one.dtype(), one.device());
      for (std::int64_t i = 0; i < width_; ++i) all.narrow(0, i * capacity_, rows).copy_from(one.narrow(0, 0, rows));
      return all;
    };
    std::map<const void*, nn::RopeTable> distinct;  // layers share tables
    nn::LayerTables all;
    for (const nn::RopeTable& table : *tables) {
      if (!table.cos.defined()) {
        all.emplace_back();
        continue;
      }
      const auto [found, added] = distinct.try_emplace(table.cos.raw_data());
      if (added) found->second = {repeat(table.cos), repeat(table.sin)};
      all.push_back(found->second);
    }
    original_ = tables;
    repeated_ = std::make_shared<const nn::LayerTables>(std::move(all));
    return repeated_;
  }

  const nn::CausalLm& model_;
  std::int64_t width_, capacity_;
  nn::KvCache cache_;
  std::shared_ptr<const nn::LayerTables> original_, repeated_;
};

class BatchGeneration {
 public:
  BatchGeneration(const nn::CausalLm& model, std::span<const BatchPrompt> prompts, const GenerationOptions& options,
                  std::int64_t width, std::int64_t capacity,
                  const std::function<void(std::size_t, const GenerationResult&)>& on_result,
                  const std::function<bool(std::size_t, std::int32_t)>& on_token)
      : prompts_(prompts),
        options_(options),
        on_result_(on_result),
        on_token_(on_token),
        cache_(model, width, capacity),
        texts_(static_cast<std::size_t>(width)) {}

  void run() {
    while (true) {
      for (std::size_t i = 0; i < texts_.size(); ++i)
        while (!texts_[i] && next_ < prompts_.size()) begin(i);
      if (std::ranges::none_of(texts_, [](const auto& text) { return text.has_value(); })) return;
      step();
    }
  }

 private:
  struct Text {
    std::size_t prompt = 0;
    std::vector<std::int32_t> tokens;
    GenerationResult result;
    Clock::time_point decoding_since;
  };

  void begin(std::size_t slot) {
    const BatchPrompt& prompt = prompts_[next_];
    Text& text = texts_[slot].emplace();
    text.prompt = next_++;
    text.tokens = prompt.tokens;
    if (prompt.max_new_tokens == 0) return end(slot);
    const auto start = Clock::now();
    const std::array<SharedCache::Stretch, 1> stretch{{{static_cast<std::int64_t>(slot), 0, text.tokens}}};
    const HostCopy logits = cache_.logits(stretch);
    (void)logits.get();
    text.decoding_since = Clock::now();
    text.result.prompt_seconds = std::chrono::duration<double>(text.decoding_since - start).count();
    accept(slot, logits.get(), 0);
  }

  // Decodes one token per text.
  void step() {
    std::vector<std::size_t> slots;
    std::vector<SharedCache::Stretch> stretches;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (!texts_[i]) continue;
      const std::vector<std::int32_t>& tokens = texts_[i]->tokens;
      slots.push_back(i);
      stretches.push_back(
          {static_cast<std::int64_t>(i), static_cast<std::int64_t>(tokens.size()) - 1, std::span(tokens).last(1)});
    }
    const HostCopy logits = cache_.logits(stretches);
    for (std::size_t row = 0; row < slots.size(); ++row)
      accept(slots[row], logits.get(), static_cast<std::int64_t>(row));
  }

  void accept(std::size_t slot, const Tensor& logits, std::int64_t row) {
    Text& text = *texts_[slot];
    const std::int64_t vocabulary = logits.size(1);
    const std::int32_t token =
        sample_token(std::span(logits.data<float>() + row * vocabulary, static_cast<std::size_t>(vocabulary)),
                     text.tokens, options_.sampling, static_cast<std::int64_t>(text.tokens.size()));
    text.tokens.push_back(token);
    text.result.tokens.push_back(token);
    text.result.stopped = std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end();
    const bool continues = !text.result.stopped && (!on_token_ || on_token_(text.prompt, token));
    if (!continues || static_cast<std::int64_t>(text.result.tokens.size()) == prompts_[text.prompt].max_new_tokens)
      end(slot);
  }

  void end(std::size_t slot) {
    Text text = std::move(*texts_[slot]);
    texts_[slot].reset();
    if (!text.result.tokens.empty())
      text.result.decode_seconds = std::chrono::duration<double>(Clock::now() - text.decoding_since).count();
    on_result_(text.prompt, text.result);
  }

  std::span<const BatchPrompt> prompts_;
  const GenerationOptions& options_;
  const std::function<void(std::size_t, const GenerationResult&)>& on_result_;
  const std::function<bool(std::size_t, std::int32_t)>& on_token_;
  SharedCache cache_;
  std::vector<std::optional<Text>> texts_;
  std::size_t next_ = 0;
};

}  // namespace

void generate_batch(const nn::CausalLm& model, std::span<const BatchPrompt> prompts, const GenerationOptions& options,
                    std::int64_t width, const std::function<void(std::size_t, const GenerationResult&)>& on_result,
                    const std::function<bool(std::size_t, std::int32_t)>& on_token) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, width > 0, "texts side by side: {}, expected at least 1", width);
  std::int64_t capacity = 1;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    GenerationOptions own = options;
    own.max_new_tokens = prompts[i].max_new_tokens;
    try {
      check_generation(model, prompts[i].tokens, own);
    } catch (const Error& error) {
      QUENCH_FAIL(error.code(), "prompt {}: {}", i + 1, error.what());
    }
    capacity = std::max(capacity, static_cast<std::int64_t>(prompts[i].tokens.size()) + own.max_new_tokens);
  }
  if (prompts.empty()) return;
  if (nn::cached_keys_change(model.config(), 1, capacity)) {
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      GenerationOptions own = options;
      own.max_new_tokens = prompts[i].max_new_tokens;
      on_result(i, generate(model, prompts[i].tokens, own,
                            [&](std::int32_t token) { return !on_token || on_token(i, token); }));
    }
    return;
  }
  // Length-dependent angles need a table per text.
  if (nn::rotations_depend_on_length(model.config(), capacity)) width = 1;
  width = std::min(width, static_cast<std::int64_t>(prompts.size()));
  BatchGeneration(model, prompts, options, width, capacity, on_result, on_token).run();
}

}  // namespace quench
