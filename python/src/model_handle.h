#pragma once
// Model of a Python object: opened from a path, or that of a running trainer.

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/system/check.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/decoder/causal_lm.h"
#include "python/src/bindings.h"
#include "train/model/model.h"

namespace quench::python {

// Calls of one model take turns: it has one set of caches.
class Turn {
 public:
  // Throws failed in a callback of a call of the same thread, which would wait for itself.
  Turn(std::mutex& mutex, std::atomic<std::thread::id>& holder) : holder_(holder), lock_(mutex, std::defer_lock) {
    QUENCH_CHECK_AS(ErrorCode::failed, holder != std::this_thread::get_id(),
                    "the model is called in a callback of its own call: call it after that returns");
    lock_.lock();
    holder_ = std::this_thread::get_id();
  }
  ~Turn() { holder_ = std::thread::id(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::atomic<std::thread::id>& holder_;
  std::unique_lock<std::mutex> lock_;
};

struct ModelHandle {
  std::shared_ptr<void> owner;  // Model or Trainer that holds the model
  Model* opened = nullptr;      // null: a trainer's
  const nn::CausalLm* model = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer;  // or null
  std::vector<std::int64_t> stop_tokens;       // EOS ids
  struct Turns {
    std::mutex mutex;
    std::atomic<std::thread::id> holder{};
  };
  std::shared_ptr<Turns> turns = std::make_shared<Turns>();
  OwnProcess process{};

  // Runs `work` in turn, without the interpreter lock.
  template <class Work>
  auto run(Work&& work) const {
    process.require();
    return without_gil([&] {
      const Turn turn(turns->mutex, turns->holder);
      return std::forward<Work>(work)();
    });
  }
  // Throws unsupported for a trainer's model.
  [[nodiscard]] Model& require_opened(const char* method) const;
  // Throws not_found.
  [[nodiscard]] const Tokenizer& require_tokenizer(const char* why) const;
};

// Tokenizer as a Python object; None for null.
[[nodiscard]] nb::object tokenizer_object(std::shared_ptr<const Tokenizer> tokenizer);

void bind_scores(nb::class_<ModelHandle>& type);
void bind_generation(nb::class_<ModelHandle>& type);

}  // namespace quench::python
