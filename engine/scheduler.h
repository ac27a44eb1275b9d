#pragma once
// Scheduler of the engine: which sequences have pages and slots, and what the next pass computes. One thread.

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/page_pool.h"
#include "engine/passes.h"

namespace quench {

// A request with its tokens, pages and slot.
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
  std::unique_ptr<GrammarMatcher> matcher;  // null: any text
  std::vector<std::int32_t> allowed;        // tokens that may be next, by the matcher
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now(), admitted{}, first_token{};

  [[nodiscard]] std::int64_t length() const { return std::ssize(tokens) + awaited; }
  [[nodiscard]] std::int64_t left() const { return request.max_new_tokens - (length() - std::ssize(request.prompt)); }
  [[nodiscard]] SamplingRow sampling() const { return sampling_row(request.sampling, length()); }
  // Sets `matcher` and `allowed`. Throws bad_config where no token begins a text.
  void begin_grammar();
};
using SequencePtr = std::shared_ptr<Sequence>;

// A pass whose tokens the host has not read.
struct Pass {
  PassResult result;
  std::vector<std::pair<SequencePtr, std::int64_t>> rows;  // rows of the result
};

class EngineScheduler {
 public:
  EngineScheduler(const nn::CausalLm& model, const EngineOptions& options);

  [[nodiscard]] std::int64_t cache_tokens() const noexcept { return pool_.count() * nn::kPageTokens; }
  void add(SequencePtr sequence) { waiting_.push_back(std::move(sequence)); }
  void cancel(const std::set<std::uint64_t>& requests);
  // One pass; false if nothing is left to do.
  bool step();
  // Running requests, or without any the next waiting one, end with this error.
  void fail_running(const std::string& error);
  // Without `requests` and those that were not added yet.
  [[nodiscard]] EngineStats stats() const;

 private:
  void admit();
  void fill_slot(const Sequence& s);
  [[nodiscard]] std::optional<Pass> next_pass();
  [[nodiscard]] std::optional<Pass> run_chunks();
  [[nodiscard]] std::optional<Pass> decode();
  void make_room();
  void preempt();
  void compact();
  void finish(std::optional<Pass>& pass);
  void accept(const SequencePtr& sequence, const PassResult& result, std::int64_t row);
  void follow_grammars(std::span<const SequencePtr> sequences);
  void publish(Sequence& s);
  void leave(Sequence& s);
  void end(const SequencePtr& sequence, EndReason reason);
  void fail(const SequencePtr& sequence, const Error& error);

  const nn::CausalLm& model_;
  EngineOptions options_;
  PagePool pool_;
  EnginePasses passes_;
  bool overlaps_, shares_, prompt_was_last_ = false;
  std::set<std::int64_t> slots_;               // free
  std::deque<SequencePtr> waiting_, running_;  // in order of submission, and of admission
  std::optional<Pass> pending_;
  EngineStats counts_;
};

}  // namespace quench
