#include "engine/engine.h"

#include <condition_variable>
#include <mutex>

#include "core/system/log.h"
#include "engine/scheduler.h"

namespace quench {
namespace {

void check_request(const EngineRequest& request, const nn::ModelConfig& model, std::int64_t cache_tokens,
                   std::int64_t adapters) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !request.prompt.empty(), "the prompt is empty");
  check_sampling_options(request.sampling);
  for (const std::int32_t token : request.prompt)
    QUENCH_CHECK_AS(ErrorCode::bad_config, token >= 0 && token < model.vocab_size,
                    "token {} of the prompt is not one of the model's {}", token, model.vocab_size);
  QUENCH_CHECK_AS(ErrorCode::bad_config, request.max_new_tokens >= 0, "max_new_tokens is {}", request.max_new_tokens);
  QUENCH_CHECK_AS(ErrorCode::bad_config, request.top_logprobs >= 0 && request.top_logprobs <= kMostTopLogprobs,
                  "top_logprobs is {}, expected 0 to {}", request.top_logprobs, kMostTopLogprobs);
  QUENCH_CHECK_AS(ErrorCode::bad_config, request.adapter >= -1 && request.adapter < adapters,
                  "adapter is {}, expected -1 (none) to {}", request.adapter, adapters - 1);
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, request.grammar == nullptr || request.grammar->vocabulary_size() == model.vocab_size,
      "the grammar is one of {} tokens, the model has {}", request.grammar->vocabulary_size(), model.vocab_size);
  const std::int64_t length = std::ssize(request.prompt) + request.max_new_tokens;
  QUENCH_CHECK_AS(ErrorCode::bad_config, length <= model.context_length(),
                  "prompt of {} tokens and {} new ones exceed the model's context of {} (max_position_embeddings)",
                  request.prompt.size(), request.max_new_tokens, model.context_length());
  QUENCH_CHECK_AS(ErrorCode::bad_config, length <= cache_tokens,
                  "prompt of {} tokens and {} new ones exceed the KV cache of {} tokens", request.prompt.size(),
                  request.max_new_tokens, cache_tokens);
}

const EngineOptions& checked(const EngineOptions& o) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.max_sequences >= 1 && o.max_sequences <= 4096,
                  "sequences side by side: {}, expected 1 to 4096", o.max_sequences);
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.prefill_tokens >= 1, "prompt tokens in a pass: {}, expected at least 1",
                  o.prefill_tokens);
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.cache_tokens >= 0, "KV cache of {} tokens", o.cache_tokens);
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.adapters >= 0, "{} adapters", o.adapters);
  return o;
}

}  // namespace

class Engine::Impl {
 public:
  Impl(const nn::CausalLm& model, const EngineOptions& options)
      : model_(model), adapters_(options.adapters), scheduler_(model, checked(options)) {
    stats_ = scheduler_.stats();
  }

  std::uint64_t submit(EngineRequest request) {
    check_request(request, model_.config(), scheduler_.cache_tokens(), adapters_);
    const auto sequence = std::make_shared<Sequence>();
    sequence->tokens = request.prompt;
    sequence->request = std::move(request);
    sequence->begin_grammar();
    const std::lock_guard lock(mutex_);
    sequence->id = static_cast<std::uint64_t>(++requests_);
    inbox_.push_back(sequence);
    changed_.notify_all();
    return sequence->id;
  }

  void cancel(std::uint64_t request) {
    const std::lock_guard lock(mutex_);
    if (busy_ || !inbox_.empty()) cancelled_.insert(request);
  }

  bool step() {
    std::set<std::uint64_t> cancelled;
    {
      const std::lock_guard lock(mutex_);
      for (SequencePtr& sequence : inbox_) scheduler_.add(std::move(sequence));
      inbox_.clear();
      cancelled.swap(cancelled_);
      busy_ = true;
    }
    scheduler_.cancel(cancelled);
    const bool more = scheduler_.step();
    const std::lock_guard lock(mutex_);
    stats_ = scheduler_.stats();
    busy_ = more;
    return more || !inbox_.empty();
  }

  bool try_step() {
    try {
      return step();
    } catch (const std::exception& error) {
      if (model_.tensor_exchange() != nullptr) throw;  // other ranks wait in the middle of it
      QUENCH_LOG_ERROR("a pass of the engine failed: {}", error.what());
      scheduler_.fail_running(error.what());
      return true;
    }
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (try_step()) continue;
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !inbox_.empty(); });
    }
  }

  EngineStats stats() const {
    const std::lock_guard lock(mutex_);
    EngineStats stats = stats_;
    stats.waiting += std::ssize(inbox_);
    stats.requests = requests_;
    return stats;
  }

 private:
  const nn::CausalLm& model_;
  std::int64_t adapters_;
  EngineScheduler scheduler_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<SequencePtr> inbox_;
  std::set<std::uint64_t> cancelled_;
  bool busy_ = false;  // the scheduler has requests
  std::int64_t requests_ = 0;
  EngineStats stats_;
};

Engine::Engine(const nn::CausalLm& model, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
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
bool Engine::try_step() {
  return impl_->try_step();
}
void Engine::run(const std::stop_token& stop) {
  impl_->run(stop);
}
EngineStats Engine::stats() const {
  return impl_->stats();
}

}  // namespace quench
