#include "engine/scheduler.h"

#include <algorithm>

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

std::int64_t cache_pages(const nn::CausalLm& model, const EngineOptions& o) {
  if (o.cache_tokens > 0) return pages_for(o.cache_tokens);
  const Device device = model.options().device;
  // Activations and other users keep a part; on a CPU other programs the most.
  const double part = device.is_cpu() ? 0.25 : 0.8;
  const std::int64_t free = backend(device.type).memory(device).free_bytes,
                     token = nn::KvCache::bytes_per_token(model.config(), model.options().dtype, model.kv_cache()),
                     fits = static_cast<std::int64_t>(part * static_cast<double>(free)) / (token * kPageTokens);
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

void Sequence::begin_grammar() {
  if (request.grammar == nullptr) return;
  matcher = request.grammar->begin(request.stop_tokens);
  allowed.resize(static_cast<std::size_t>((request.grammar->vocabulary_size() + 31) / 32));
  QUENCH_CHECK_AS(ErrorCode::bad_config, matcher->find_allowed(allowed),
                  "no token of the vocabulary begins a text of the grammar");
}

EngineScheduler::EngineScheduler(const nn::CausalLm& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      pool_(cache_pages(model, options), kPageTokens),
      passes_(model, options.max_sequences, pool_.count(),
              std::min(pool_.count(), pages_for(model.config().context_length())), options.adapters > 0),
      overlaps_(!model.options().device.is_cpu() && passes_.decodes()),
      shares_(options.share_prefixes &&
              !nn::rotations_depend_on_length(model.config(), model.config().context_length())) {
  for (std::int64_t slot = 0; slot < options.max_sequences; ++slot) slots_.insert(slot);
}

void EngineScheduler::cancel(const std::set<std::uint64_t>& requests) {
  if (requests.empty()) return;
  for (std::deque<SequencePtr>* queue : {&waiting_, &running_})
    for (const SequencePtr& sequence : std::deque(*queue))
      if (requests.contains(sequence->id)) end(sequence, EndReason::cancelled);
}

bool EngineScheduler::step() {
  // The tokens that a grammar allows next follow from one that the host has not read.
  if (pending_ && std::ranges::any_of(pending_->rows, [](const auto& row) { return row.first->matcher != nullptr; }))
    finish(pending_);
  admit();
  make_room();
  std::optional<Pass> next = next_pass();
  if (!overlaps_ && next) pending_ = std::exchange(next, std::nullopt);
  // The pass before; with overlap the device is busy with this one meanwhile.
  std::optional<Pass> before = std::exchange(pending_, std::move(next));
  finish(before);
  return pending_ || !running_.empty() || !waiting_.empty();
}

void EngineScheduler::admit() {
  while (!waiting_.empty() && !slots_.empty()) {
    const SequencePtr sequence = waiting_.front();
    Sequence& s = *sequence;
    if (s.request.max_new_tokens == 0) {
      end(sequence, EndReason::length);
      continue;
    }
    // The last token is run for its logits.
    if (shares_) s.pages = pool_.take_prefix(std::span(s.tokens).first(s.tokens.size() - 1), s.request.adapter);
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

void EngineScheduler::fill_slot(const Sequence& s) {
  passes_.set_pages(s.slot, 0, s.pages);
  passes_.set_adapter(s.slot, s.request.adapter);
  if (s.request.sampling.repetition_penalty != 1.0) passes_.set_seen(s.slot, s.tokens);
  passes_.set_allowed(s.slot, s.allowed);
}

// Prompts and decoding take turns.
std::optional<Pass> EngineScheduler::next_pass() {
  const bool prompts = std::ranges::any_of(running_, [](const SequencePtr& s) { return !s->decoding; });
  if (prompts && !prompt_was_last_) {
    prompt_was_last_ = true;
    return run_chunks();
  }
  prompt_was_last_ = false;
  std::optional<Pass> pass = decode();
  return pass || !prompts ? std::move(pass) : run_chunks();
}

std::optional<Pass> EngineScheduler::run_chunks() {
  Pass pass;
  std::vector<TokenChunk> chunks;
  std::deque<SamplingRow> sampling;
  bool keep_logits = false;
  std::int64_t budget = options_.prefill_tokens;
  for (const SequencePtr& sequence : running_) {
    Sequence& s = *sequence;
    if (s.decoding || s.awaited > 0 || budget == 0) continue;
    if (s.cached > 0 && nn::cached_keys_change(model_.config(), s.cached, std::ssize(s.tokens))) s.cached = 0;
    const std::int64_t count = std::min(budget, std::ssize(s.tokens) - s.cached);
    TokenChunk& chunk = chunks.emplace_back(TokenChunk{
        .slot = s.slot,
        .adapter = s.request.adapter,
        .length = s.cached,
        .tokens = std::span(s.tokens).subspan(static_cast<std::size_t>(s.cached), static_cast<std::size_t>(count)),
        .pages = s.pages});
    budget -= count;
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

std::optional<Pass> EngineScheduler::decode() {
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
void EngineScheduler::make_room() {
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
void EngineScheduler::preempt() {
  const SequencePtr sequence = running_.back();
  running_.pop_back();
  leave(*sequence);
  sequence->cached = sequence->published = 0;
  sequence->decoding = false;
  waiting_.push_front(sequence);
  ++counts_.preempted;
}

// Decode passes have a row for each slot up to the last: sequences move to free slots where that saves half of them.
void EngineScheduler::compact() {
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

void EngineScheduler::finish(std::optional<Pass>& pass) {
  if (!pass) return;
  const Pass own = *std::exchange(pass, std::nullopt);
  std::vector<SequencePtr> with_grammar;
  for (const auto& [sequence, row] : own.rows) {
    --sequence->awaited;
    if (!sequence->ended) accept(sequence, own.result, row);
    if (!sequence->ended && sequence->matcher != nullptr) with_grammar.push_back(sequence);
  }
  follow_grammars(with_grammar);
}

// The last token of each, and what may come next.
void EngineScheduler::follow_grammars(std::span<const SequencePtr> sequences) {
  enum class Next : std::uint8_t { some, none, unknown };
  std::vector<Next> next(sequences.size(), Next::unknown);
  std::vector<std::string> errors(sequences.size());
#pragma omp parallel for schedule(dynamic) if (sequences.size() > 1)
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Sequence& s = *sequences[i];
    try {
      s.matcher->accept(s.tokens.back());
      next[i] = s.matcher->find_allowed(s.allowed) ? Next::some : Next::none;
    } catch (const std::exception& error) {
      errors[i] = error.what();
    }
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const SequencePtr& sequence = sequences[i];
    if (next[i] == Next::some)
      passes_.set_allowed(sequence->slot, sequence->allowed);
    else if (next[i] == Next::none && sequence->matcher->is_complete())
      end(sequence, EndReason::stop_token);
    else
      fail(sequence,
           Error(ErrorCode::failed,
                 next[i] == Next::none ? "no token of the vocabulary continues the text in its grammar" : errors[i]));
  }
}

void EngineScheduler::accept(const SequencePtr& sequence, const PassResult& result, std::int64_t row) {
  Sequence& s = *sequence;
  const SampledRow& sampled = result.row(row);
  if (sampled.first_nonfinite >= 0) {
    try {
      fail_nonfinite_logit(sampled.first_nonfinite, std::ssize(s.tokens));
    } catch (const Error& error) {
      return fail(sequence, error);
    }
  }
  SampledToken token{.token = sampled.token, .logprob = result.logprob(row), .top = {}};
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
void EngineScheduler::publish(Sequence& s) {
  if (!shares_) return;
  const std::int64_t known = std::min(s.cached, std::ssize(s.tokens)) / kPageTokens;
  for (; s.published < known; ++s.published) {
    const auto i = static_cast<std::size_t>(s.published);
    pool_.publish(s.pages[i], i == 0 ? std::nullopt : std::optional(s.pages[i - 1]),
                  std::span(s.tokens).subspan(i * kPageTokens, kPageTokens), s.request.adapter);
  }
}

// Slot and pages of a running sequence.
void EngineScheduler::leave(Sequence& s) {
  pool_.release(s.pages);
  s.pages.clear();
  if (s.slot >= 0) slots_.insert(s.slot);
  s.slot = -1;
}

void EngineScheduler::end(const SequencePtr& sequence, EndReason reason) {
  Sequence& s = *sequence;
  s.ended = true;
  leave(s);
  std::erase(running_, sequence);
  std::erase(waiting_, sequence);
  s.result.reason = reason;
  if (s.first_token != Clock::time_point()) s.result.decode_seconds = seconds(s.first_token, Clock::now());
  if (reason == EndReason::failed) ++counts_.failed;
  if (s.request.on_end) s.request.on_end(std::move(s.result));
}

void EngineScheduler::fail(const SequencePtr& sequence, const Error& error) {
  sequence->result.error = error.what();
  sequence->result.code = error.code();
  end(sequence, EndReason::failed);
}

void EngineScheduler::fail_running(const std::string& error) {
  pending_.reset();
  std::deque<SequencePtr> failed = running_;
  if (failed.empty() && !waiting_.empty()) failed.push_back(waiting_.front());
  for (const SequencePtr& sequence : failed) {
    sequence->result.error = error;
    end(sequence, EndReason::failed);
  }
}

EngineStats EngineScheduler::stats() const {
  EngineStats stats = counts_;
  stats.cache_tokens = cache_tokens();
  stats.free_tokens = pool_.free() * kPageTokens;
  stats.running = std::ssize(running_);
  stats.waiting = std::ssize(waiting_);
  return stats;
}

}  // namespace quench
