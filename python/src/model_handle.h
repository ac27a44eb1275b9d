#pragma once
// Model of a Python object: opened from a path, or that of a running trainer.

#include <memory>
#include <mutex>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "nn/decoder/causal_lm.h"
#include "python/src/bindings.h"
#include "train/model/model.h"

namespace quench::python {

// Calls take turns: a model has one set of caches.
struct ModelHandle {
  std::shared_ptr<void> owner;  // Model or Trainer that holds the model
  Model* opened = nullptr;      // null: a trainer's
  const nn::CausalLm* model = nullptr;
  std::shared_ptr<const Tokenizer> tokenizer;  // or null
  std::vector<std::int64_t> stop_tokens;       // EOS ids
  std::shared_ptr<std::mutex> turn = std::make_shared<std::mutex>();
  OwnProcess process{};

  // Runs `work` in turn, without the interpreter lock.
  template <class Work>
  auto run(Work&& work) const {
    process.require();
    return without_gil([&] {
      const std::lock_guard lock(*turn);
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
