#include "train/rollouts/rollouts.h"

#include <algorithm>
#include <numeric>

#include "core/number/random.h"
#include "core/ops/loss/cross_entropy.h"
#include "core/system/utf8.h"
#include "data/sampling/bin_packing.h"
#include "engine/engine.h"
#include "engine/plan.h"
#include "nn/attention/paged_keys.h"

namespace quench {
namespace {

constexpr std::int64_t kMostSequences = 64;  // decoded together

// Most tokens of a prompt with its completion.
std::int64_t longest_text(const nn::CausalLm& model, const RolloutOptions& options) {
  return std::min(options.sequence_tokens + 1, model.config().context_length());
}

EngineOptions engine_options(const nn::CausalLm& model, std::int64_t prompts, const RolloutOptions& options) {
  const std::int64_t together = std::min(kMostSequences, options.generations * prompts);
  return {.max_sequences = together, .cache_tokens = together * (longest_text(model, options) + nn::kPageTokens)};
}

std::string record_text(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::string text = tokenizer.decode(tokens, {.skip_special = true});
  const std::size_t end = text.rfind('}');
  if (end != std::string::npos) text.resize(end + 1);
  return text;
}

RolloutPrompt prompt_of(const Batch& batch, const SequenceRange& sequence, const Tokenizer& tokenizer) {
  const std::int64_t length = batch.input_ids.size(1);
  const std::span ids(batch.input_ids.data<std::int32_t>() + sequence.q_begin,
                      static_cast<std::size_t>(sequence.q_length));
  const std::int32_t* labels = batch.labels.data<std::int32_t>() + sequence.q_begin;
  std::size_t prompt = 1;
  while (prompt < ids.size() && labels[prompt - 1] == kIgnoreLabel) ++prompt;
  RolloutPrompt result{.sample = batch.first_sample + static_cast<std::uint64_t>(sequence.q_begin / length)};
  result.tokens.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(prompt));
  result.text = replace_invalid_utf8(tokenizer.decode(result.tokens));
  const std::string text = record_text(tokenizer, ids.subspan(prompt));
  try {
    result.record = Json::parse(text);
  } catch (const Error& error) {
    QUENCH_FAIL(
        ErrorCode::corrupt,
        "the fields of a record are {} after tokenization, no JSON object: {}; the tokenizer changes texts, use "
        "answers that it keeps",
        Json(replace_invalid_utf8(text)).dump(), error.what());
  }
  return result;
}

Completion completion_of(EngineResult result, const Tokenizer& tokenizer) {
  QUENCH_CHECK_AS(result.code, result.reason != EndReason::failed, "a completion cannot be sampled: {}", result.error);
  Completion completion{.tokens = std::move(result.tokens), .ended = result.reason == EndReason::stop_token};
  completion.logps.assign(result.logprobs.begin(), result.logprobs.end());
  const std::span shown(completion.tokens.data(), completion.tokens.size() - (completion.ended ? 1 : 0));
  completion.text = replace_invalid_utf8(tokenizer.decode(shown, {.skip_special = true}));
  return completion;
}

void write_sequence(const Batch& batch, std::int64_t at, const RolloutSequence& sequence) {
  std::int32_t* ids = batch.input_ids.data<std::int32_t>() + at;
  std::int32_t* labels = batch.labels.data<std::int32_t>() + at;
  std::int32_t* positions = batch.positions.data<std::int32_t>() + at;
  const std::size_t prompt = sequence.prompt.size(), inputs = prompt + sequence.completion.size() - 1;
  for (std::size_t i = 0; i < inputs; ++i) {
    ids[i] = i < prompt ? sequence.prompt[i] : sequence.completion[i - prompt];
    labels[i] = i + 1 < prompt ? kIgnoreLabel : sequence.completion[i + 1 - prompt];
    positions[i] = static_cast<std::int32_t>(i);
  }
}

Batch padding(std::int64_t rows, std::int64_t length) {
  const MemoryScope scope(MemoryCategory::data);
  Batch batch;
  batch.input_ids = Tensor::zeros({rows, length}, DType::i32);
  batch.labels = Tensor::empty({rows, length}, DType::i32);
  batch.positions = Tensor::zeros({rows, length}, DType::i32);
  std::fill_n(batch.labels.data<std::int32_t>(), rows * length, kIgnoreLabel);
  return batch;
}

}  // namespace

std::vector<RolloutPrompt> rollout_prompts(std::span<const Batch> batches, const Tokenizer& tokenizer) {
  std::vector<RolloutPrompt> prompts;
  for (const Batch& batch : batches)
    for (const SequenceRange& sequence : batch.sequences) prompts.push_back(prompt_of(batch, sequence, tokenizer));
  return prompts;
}

std::vector<RolloutPrompt> answer_prompts(std::span<const Batch> batches, const Tokenizer& tokenizer) {
  std::vector<RolloutPrompt> prompts;
  for (const Batch& batch : batches) {
    const std::uint64_t tokens = static_cast<std::uint64_t>(batch.input_ids.size(1));
    for (const SequenceRange& sequence : batch.sequences) {
      const std::int32_t* labels = batch.labels.data<std::int32_t>() + sequence.q_begin;
      std::int64_t last = sequence.q_length;  // after the last target
      while (last > 0 && labels[last - 1] == kIgnoreLabel) --last;
      std::int64_t first = last;
      while (first > 0 && labels[first - 1] != kIgnoreLabel) --first;
      if (first == 0) continue;
      const std::int32_t* ids = batch.input_ids.data<std::int32_t>() + sequence.q_begin;
      // The row of the first target is the prompt's last token.
      RolloutPrompt& prompt = prompts.emplace_back();
      prompt.sample = batch.first_sample * tokens + static_cast<std::uint64_t>(sequence.q_begin);
      prompt.tokens.assign(ids, ids + first + 1);
      prompt.text = replace_invalid_utf8(tokenizer.decode(prompt.tokens));
    }
  }
  return prompts;
}

std::vector<std::vector<Completion>> sample_completions(const nn::CausalLm& model,
                                                        std::span<const RolloutPrompt> prompts,
                                                        const RolloutOptions& options, std::int64_t step,
                                                        const Tokenizer& tokenizer) {
  std::vector<std::vector<Completion>> groups(prompts.size());
  if (prompts.empty()) return groups;
  const std::int64_t longest = longest_text(model, options);
  // Weights have changed since the last step: keys of an earlier engine are of no use.
  Engine engine(model, engine_options(model, std::ssize(prompts), options));
  std::vector<std::vector<EngineResult>> results(prompts.size());
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const RolloutPrompt& prompt = prompts[p];
    const std::int64_t left = longest - static_cast<std::int64_t>(prompt.tokens.size());
    QUENCH_CHECK_AS(ErrorCode::bad_config, left > 0,
                    "a prompt has {} tokens, and no completion fits a sequence of {}; raise data.seq_len",
                    prompt.tokens.size(), longest);
    results[p].resize(static_cast<std::size_t>(options.generations));
    for (std::size_t g = 0; g < results[p].size(); ++g) {
      EngineRequest request{.prompt = prompt.tokens,
                            .max_new_tokens = std::min(options.max_tokens, left),
                            .sampling = options.sampling,
                            .stop_tokens = options.stop_tokens};
      const RandomKey key{options.sampling.seed, hash64("rollout") ^ prompt.sample, static_cast<std::uint64_t>(step)};
      const PhiloxBlock words = random_block(key, g);
      request.sampling.seed = static_cast<std::uint64_t>(words[0]) << 32 | words[1];
      request.on_end = [&results, p, g](EngineResult result) { results[p][g] = std::move(result); };
      (void)engine.submit(std::move(request));
    }
  }
  while (engine.step()) {
  }
  for (std::size_t p = 0; p < prompts.size(); ++p)
    for (EngineResult& result : results[p]) groups[p].push_back(completion_of(std::move(result), tokenizer));
  return groups;
}

std::int64_t plan_completions(const nn::CausalLm& model, std::int64_t prompts, const RolloutOptions& options) {
  return plan_engine(model, engine_options(model, prompts, options), longest_text(model, options) - 1);
}

RolloutBatches pack_rollouts(std::span<const RolloutSequence> sequences, std::int64_t rows, std::int64_t length) {
  std::vector<std::uint64_t> sizes;
  for (const RolloutSequence& sequence : sequences)
    sizes.push_back(sequence.prompt.size() + sequence.completion.size() - 1);
  Bins bins;
  if (!sizes.empty()) bins = pack_bins(sizes, static_cast<std::uint64_t>(length));
  const std::size_t row_count = bins.starts.empty() ? 0 : bins.starts.size() - 1;
  const std::size_t step = static_cast<std::size_t>(rows);
  RolloutBatches result;
  for (std::size_t first = 0; first < std::max<std::size_t>(row_count, 1); first += step) {
    Batch batch = padding(rows, length);
    std::vector<std::size_t> members;
    batch.first_sample = result.batches.size();
    for (std::size_t row = first; row < std::min(row_count, first + step); ++row) {
      std::int64_t at = static_cast<std::int64_t>(row - first) * length;
      for (std::uint64_t i = bins.starts[row]; i < bins.starts[row + 1]; ++i) {
        const auto member = static_cast<std::size_t>(bins.items[i]);
        const auto size = static_cast<std::int64_t>(sizes[member]);
        write_sequence(batch, at, sequences[member]);
        batch.sequences.push_back({at, size, at, size});
        batch.valid_tokens += std::ssize(sequences[member].completion);
        members.push_back(member);
        at += size;
      }
    }
    result.batches.push_back(std::move(batch));
    result.members.push_back(std::move(members));
  }
  return result;
}

}  // namespace quench
