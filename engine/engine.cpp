#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "core/memory/storage.h"
#include "core/system/check.h"
#include "core/system/log.h"
#include "engine/page_pool.h"
#include "engine/passes.h"

namespace quench {
namespace {

using Clock = std::chrono::steady_clock;
using nn::kPageTokens;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::int64_t pages_for(std::int64_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

struct Sequence {
  std::uint64_t id = 0;
  EngineRequest request;
  EngineResult result;
  std::vector<std::int32_t> tokens;  // prompt and generated ones
  std::vector<std::int32_t> pages;
  std::int64_t slot = -1;
  std::int64_t cached = 0;     // tokens whose keys the passes so far compute
  std::int64_t published = 0;  // pages known to others
  std::int64_t awaited = 0;    // sampled by passes, not in `tokens` yet
  bool decoding = false;       // the slot has the last token, the only one that is not cached
  bool ended = false;
  Clock::time_point submitted = Clock::now(), admitted{}, first_token{};

  [[nodiscard]] std::int64_t length() const { return std::ssize(tokens) + awaited; }
  [[nodiscard]] std::int64_t left() const { return request.max_new_tokens - (length() - std::ssize(request.prompt)); }
  [[nodiscard]] SamplingRow sampling() const { return sampling_row(request.sampling, length()); }
};
using SequencePtr = std::shared_ptr<Sequence>;

// A pass whose tokens the host has not read.
struct Pass {
  PassResult result;
  std::vector<std::pair<SequencePtr, std::int64_t>> rows;  // of the result
};

void check_request(const EngineRequest& request, const nn::ModelConfig& model, std::int64_t cache_tokens) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !request.prompt.empty(), "the prompt is empty");
  check_sampling_options(request.sampling);
  for (const std::int32_t token : request.prompt)
    QUENCH_CHECK_AS(ErrorCode::bad_config, token >= 0 && token < model.vocab_size,
                    "token {} of the prompt is not one of the model's {}", token, model.vocab_size);
  QUENCH_CHECK_AS(ErrorCode::bad_config, request.max_new_tokens >= 0, "max_new_tokens is {}", request.max_new_tokens);
  QUENCH_CHECK_AS(ErrorCode::bad_config, request.top_logprobs >= 0 && request.top_logprobs <= kMostTopLogprobs,
                  "top_logprobs is {}, expected 0 to {}", request.top_logprobs, kMostTopLogprobs);
  const std::int64_t length = std::ssize(request.prompt) + request.max_new_tokens;
  QUENCH_CHECK_AS(ErrorCode::bad_config, length <= model.context_length(),
                  "prompt of {} tokens and {} new ones exceed the model's context of {} (max_position_embeddings)",
                  request.prompt.size(), request.max_new_tokens, model.context_length());
  QUENCH_CHECK_AS(ErrorCode::bad_config, length <= cache_tokens,
                  "prompt of {} tokens and {} new ones exceed the KV cache of {} tokens", request.prompt.size(),
                  request.max_new_tokens, cache_tokens);
}

std::int64_t cache_pages(const nn::CausalLm& model, const EngineOptions& o) {
  if (o.cache_tokens > 0) return pages_for(o.cache_tokens);
  // Activations and other users keep a part.
  constexpr double kPart = 0.8;
  const Device device = model.options().device;
  const std::int64_t free = backend(device.type).memory(device).free_bytes,
                     token = nn::KvCache::bytes_per_token(model.config(), model.options().dtype, model.kv_cache()),
                     fits = static_cast<std::int64_t>(kPart * static_cast<double>(free)) / (token * kPageTokens);
  return std::max<std::int64_t>(1, std::min(o.max_sequences * pages_for(model.config().context_length()), fits));
}

// Most likely tokens of a row, descending.
std::vector<TokenLogprob> most_likely(std::span<const float> logits, const SampledRow& row, std::int64_t count) {
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  const auto middle = order.begin() + std::min<std::int64_t>(count, std::ssize(order));
  std::ranges::partial_sort(order, middle, [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::vector<TokenLogprob> result;
  for (auto token = order.begin(); token != middle; ++token) {
    SampledRow of_token = row;
    of_token.logit = logits[static_cast<std::size_t>(*token)];
    result.push_back({*token, logprob_of(of_token)});
  }
  return result;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const nn::CausalLm& model, const EngineOptions& options)
      : model_(model),
        options_(options),
        pool_(cache_pages(model, options), kPageTokens),
        passes_(model, options.max_sequences, pool_.count(),
                std::min(pool_.count(), pages_for(model.config().context_length()))),
        overlaps_(!model.options().device.is_cpu() && passes_.decodes()),
        shares_(options.share_prefixes &&
                !nn::rotations_depend_on_length(model.config(), model.config().context_length())) {
    for (std::int64_t slot = 0; slot < options.max_sequences; ++slot) slots_.insert(slot);
    stats_.cache_tokens = stats_.free_tokens = pool_.count() * kPageTokens;
  }

  std::uint64_t submit(EngineRequest request) {
    check_request(request, model_.config(), pool_.count() * kPageTokens);
    const auto sequence = std::make_shared<Sequence>();
    sequence->tokens = request.prompt;
    sequence->request = std::move(request);
    const std::lock_guard lock(mutex_);
    sequence->id = static_cast<std::uint64_t>(++stats_.requests);
    ++active_;
    inbox_.push_back(sequence);
    changed_.notify_all();
    return sequence->id;
  }

  void cancel(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    if (active_ > 0) cancelled_.insert(id);
  }

  bool step() {
    take_messages();
    admit();
    make_room();
    std::optional<Pass> next = next_pass();
    if (!overlaps_ && next) pending_ = std::exchange(next, std::nullopt);
    // The pass before; with overlap the device is busy with this one meanwhile.
    std::optional<Pass> before = std::exchange(pending_, std::move(next));
    finish(before);
    refresh_stats();
    return pending_ || !running_.empty() || !waiting_.empty();
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      bool more = true;
      try {
        more = step();
      } catch (const std::exception& error) {
        QUENCH_LOG_ERROR("a pass of the engine failed: {}", error.what());
        fail_running(error.what());
      }
      if (more) continue;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !inbox_.empty(); });
    }
  }

  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.waiting += std::ssize(inbox_);
    return stats;
  }

 private:
  void take_messages() {
    std::set<std::uint64_t> cancelled;
    {
      const std::lock_guard lock(mutex_);
      waiting_.insert(waiting_.end(), inbox_.begin(), inbox_.end());
      inbox_.clear();
      cancelled.swap(cancelled_);
    }
    if (cancelled.empty()) return;
    for (std::deque<SequencePtr>* queue : {&waiting_, &running_})
      for (const SequencePtr& sequence : std::deque(*queue))
        if (cancelled.contains(sequence->id)) end(sequence, EndReason::cancelled);
  }

  void admit() {
    while (!waiting_.empty() && !slots_.empty()) {
      const SequencePtr sequence = waiting_.front();
      Sequence& s = *sequence;
      if (s.request.max_new_tokens == 0) {
        end(sequence, EndReason::length);
        continue;
      }
      // The last token is run for its logits.
      if (shares_) s.pages = pool_.take_prefix(std::span(s.tokens).first(s.tokens.size() - 1));
      const std::int64_t needed = pages_for(std::ssize(s.tokens)) - std::ssize(s.pages);
      // A page to grow by for each running sequence.
      if (pool_.free() < needed + std::ssize(running_)) {
        pool_.release(s.pages);
        s.pages.clear();
        return;
      }
      s.published = std::ssize(s.pages);
      s.cached = s.published * kPageTokens;
      for (std::int64_t i = 0; i < needed; ++i) s.pages.push_back(*pool_.take());
      s.slot = *slots_.begin();
      slots_.erase(slots_.begin());
      fill_slot(s);
      if (s.admitted == Clock::time_point()) {
        s.admitted = Clock::now();
        s.result.wait_seconds = seconds(s.submitted, s.admitted);
        s.result.reused_tokens = s.cached;
        counts_.prompt_tokens += std::ssize(s.request.prompt);
        counts_.reused_tokens += s.cached;
      }
      waiting_.pop_front();
      running_.push_back(sequence);
    }
  }

  void fill_slot(const Sequence& s) {
    passes_.set_pages(s.slot, 0, s.pages);
    if (s.request.sampling.repetition_penalty != 1.0) passes_.set_seen(s.slot, s.tokens);
  }

  // Prompts and decoding take turns.
  std::optional<Pass> next_pass() {
    const bool prompts = std::ranges::any_of(running_, [](const SequencePtr& s) { return !s->decoding; });
    if (prompts && !prompt_was_last_) {
      prompt_was_last_ = true;
      return run_chunks();
    }
    prompt_was_last_ = false;
    std::optional<Pass> pass = decode();
    return pass || !prompts ? std::move(pass) : run_chunks();
  }

  std::optional<Pass> run_chunks() {
    Pass pass;
    std::vector<TokenChunk> chunks;
    std::deque<SamplingRow> sampling;
    bool keep_logits = false;
    std::int64_t room = options_.prefill_tokens;
    for (const SequencePtr& sequence : running_) {
      Sequence& s = *sequence;
      if (s.decoding || s.awaited > 0 || room == 0) continue;
      if (s.cached > 0 && nn::cached_keys_change(model_.config(), s.cached, std::ssize(s.tokens))) s.cached = 0;
      const std::int64_t count = std::min(room, std::ssize(s.tokens) - s.cached);
      TokenChunk& chunk = chunks.emplace_back(TokenChunk{
          .slot = s.slot,
          .length = s.cached,
          .tokens = std::span(s.tokens).subspan(static_cast<std::size_t>(s.cached), static_cast<std::size_t>(count)),
          .pages = s.pages});
      room -= count;
      s.cached += count;
      if (s.cached < std::ssize(s.tokens)) continue;
      chunk.sampling = &sampling.emplace_back(s.sampling());
      keep_logits = keep_logits || s.request.top_logprobs > 0;
      pass.rows.emplace_back(sequence, std::ssize(pass.rows));
    }
    if (chunks.empty()) return std::nullopt;
    pass.result = passes_.run_chunks(chunks, keep_logits);
    for (const auto& [sequence, row] : pass.rows) {
      ++sequence->awaited;
      sequence->decoding = passes_.decodes();
    }
    ++counts_.passes;
    return pass;
  }

  std::optional<Pass> decode() {
    if (!passes_.decodes()) return std::nullopt;
    Pass pass;
    std::vector<DecodeRow> rows;
    bool keep_logits = false;
    for (const SequencePtr& sequence : running_) {
      Sequence& s = *sequence;
      if (!s.decoding || s.left() <= 0) continue;
      rows.push_back({.slot = s.slot, .position = s.length() - 1, .sampling = s.sampling()});
      keep_logits = keep_logits || s.request.top_logprobs > 0;
      pass.rows.emplace_back(sequence, s.slot);
    }
    if (rows.empty()) return std::nullopt;
    pass.result = passes_.decode(rows, keep_logits);
    for (const auto& [sequence, row] : pass.rows) {
      ++sequence->awaited;
      ++sequence->cached;
    }
    ++counts_.passes;
    return pass;
  }

  // Pages for the tokens of the next pass.
  void make_room() {
    for (std::size_t i = 0; i < running_.size();) {
      Sequence& s = *running_[i];
      if ((s.decoding && s.left() <= 0) || pages_for(s.length()) <= std::ssize(s.pages)) {
        ++i;
      } else if (const std::optional<std::int32_t> page = pool_.take()) {
        s.pages.push_back(*page);
        passes_.set_pages(s.slot, std::ssize(s.pages) - 1, std::span(s.pages).last(1));
      } else if (pending_) {
        finish(pending_);
        i = 0;
      } else {
        preempt();
      }
    }
    compact();
  }

  // The newest sequence gives its place back.
  void preempt() {
    const SequencePtr sequence = running_.back();
    running_.pop_back();
    leave(*sequence);
    sequence->cached = sequence->published = 0;
    sequence->decoding = false;
    waiting_.push_front(sequence);
    ++counts_.preempted;
  }

  // Decode passes have a row for each slot up to the last: sequences move to free slots where that saves half of them.
  void compact() {
    const auto rows = [&] {
      std::int64_t most = 0;
      for (const SequencePtr& s : running_) most = std::max(most, s->slot + 1);
      return most;
    };
    const std::int64_t count = std::ssize(running_);
    if (rows() <= (overlaps_ ? 2 * count : count) || !passes_.decodes()) return;
    finish(pending_);
    for (const SequencePtr& sequence : running_) {
      Sequence& s = *sequence;
      if (s.slot < std::ssize(running_)) continue;
      slots_.insert(s.slot);
      s.slot = *slots_.begin();
      slots_.erase(slots_.begin());
      fill_slot(s);
      passes_.set_token(s.slot, s.tokens.back());
    }
  }

  void finish(std::optional<Pass>& pass) {
    if (!pass) return;
    const Pass own = *std::exchange(pass, std::nullopt);
    for (const auto& [sequence, row] : own.rows) {
      --sequence->awaited;
      if (!sequence->ended) accept(sequence, own.result, row);
    }
  }

  void accept(const SequencePtr& sequence, const PassResult& result, std::int64_t row) {
    Sequence& s = *sequence;
    const SampledRow& sampled = result.row(row);
    if (sampled.first_nonfinite >= 0) {
      try {
        fail_nonfinite_logit(sampled.first_nonfinite, std::ssize(s.tokens));
      } catch (const Error& error) {
        s.result.error = error.what();
        s.result.code = error.code();
      }
      return end(sequence, EndReason::failed);
    }
    SampledToken token{.token = sampled.token, .logprob = logprob_of(sampled), .top = {}};
    if (s.request.top_logprobs > 0) {
      const Tensor& logits = result.logits->get();
      const auto vocabulary = static_cast<std::size_t>(logits.size(1));
      token.top = most_likely({logits.data<float>() + static_cast<std::size_t>(row) * vocabulary, vocabulary}, sampled,
                              s.request.top_logprobs);
    }
    s.tokens.push_back(token.token);
    publish(s);
    if (s.result.tokens.empty()) {
      s.first_token = Clock::now();
      s.result.prompt_seconds = seconds(s.admitted, s.first_token);
    }
    s.result.tokens.push_back(token.token);
    s.result.logprobs.push_back(token.logprob);
    ++counts_.generated_tokens;
    const bool continues = !s.request.on_token || s.request.on_token(token);
    if (std::ranges::find(s.request.stop_tokens, token.token) != s.request.stop_tokens.end())
      end(sequence, EndReason::stop_token);
    else if (!continues)
      end(sequence, EndReason::stopped);
    else if (std::ssize(s.result.tokens) == s.request.max_new_tokens)
      end(sequence, EndReason::length);
  }

  // Full pages whose keys have been computed.
  void publish(Sequence& s) {
    if (!shares_) return;
    const std::int64_t known = std::min(s.cached, std::ssize(s.tokens)) / kPageTokens;
    for (; s.published < known; ++s.published) {
      const auto i = static_cast<std::size_t>(s.published);
      pool_.publish(s.pages[i], i == 0 ? std::nullopt : std::optional(s.pages[i - 1]),
                    std::span(s.tokens).subspan(i * kPageTokens, kPageTokens));
    }
  }

  // Slot and pages of a running sequence.
  void leave(Sequence& s) {
    pool_.release(s.pages);
    s.pages.clear();
    if (s.slot >= 0) slots_.insert(s.slot);
    s.slot = -1;
  }

  void end(const SequencePtr& sequence, EndReason reason) {
    Sequence& s = *sequence;
    s.ended = true;
    leave(s);
    std::erase(running_, sequence);
    std::erase(waiting_, sequence);
    s.result.reason = reason;
    if (s.first_token != Clock::time_point()) s.result.decode_seconds = seconds(s.first_token, Clock::now());
    if (reason == EndReason::failed) ++counts_.failed;
    {
      const std::lock_guard lock(mutex_);
      --active_;
    }
    if (s.request.on_end) s.request.on_end(std::move(s.result));
  }

  // The next waiting one, where none is running.
  void fail_running(const std::string& error) {
    pending_.reset();
    std::deque<SequencePtr> failed = running_;
    if (failed.empty() && !waiting_.empty()) failed.push_back(waiting_.front());
    for (const SequencePtr& sequence : failed) {
      sequence->result.error = error;
      end(sequence, EndReason::failed);
    }
  }

  void refresh_stats() {
    const std::lock_guard lock(mutex_);
    const std::int64_t requests = stats_.requests, cache = stats_.cache_tokens;
    stats_ = counts_;
    stats_.requests = requests;
    stats_.cache_tokens = cache;
    stats_.free_tokens = pool_.free() * kPageTokens;
    stats_.running = std::ssize(running_);
    stats_.waiting = std::ssize(waiting_);
  }

  const nn::CausalLm& model_;
  EngineOptions options_;
  PagePool pool_;
  EnginePasses passes_;
  bool overlaps_, shares_, prompt_was_last_ = false;
  std::set<std::int64_t> slots_;               // free
  std::deque<SequencePtr> waiting_, running_;  // in order of submission, and of admission
  std::optional<Pass> pending_;
  EngineStats counts_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<SequencePtr> inbox_;
  std::set<std::uint64_t> cancelled_;
  std::int64_t active_ = 0;  // requests that have not ended
  EngineStats stats_;
};

namespace {

const EngineOptions& checked(const EngineOptions& o) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.max_sequences >= 1 && o.max_sequences <= 4096,
                  "sequences side by side: {}, expected 1 to 4096", o.max_sequences);
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.prefill_tokens >= 1, "prompt tokens in a pass: {}, expected at least 1",
                  o.prefill_tokens);
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.cache_tokens >= 0, "KV cache of {} tokens", o.cache_tokens);
  return o;
}

}  // namespace

Engine::Engine(const nn::CausalLm& model, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, checked(options))) {}
Engine::~Engine() = default;

std::uint64_t Engine::submit(EngineRequest request) {
  return impl_->submit(std::move(request));
}
void Engine::cancel(std::uint64_t request) {
  impl_->cancel(request);
}
bool Engine::step() {
  return impl_->step();
}
void Engine::run(const std::stop_token& stop) {
  impl_->run(stop);
}
EngineStats Engine::stats() const {
  return impl_->stats();
}

}  // namespace quench
