#include "train/objectives/distillation/run/target_source.h"

#include <utility>

#include "core/memory/memory_part.h"

namespace quench {
namespace {

class LiveRows final : public TargetRows {
 public:
  LiveRows(std::unique_ptr<Teacher::Head> head, Tensor hidden) : head_(std::move(head)), hidden_(std::move(hidden)) {}

  [[nodiscard]] DivergenceTarget of(const CrossEntropyArgs& chunk, std::int64_t first_row) override {
    const std::int64_t rows = chunk.logits.size(0);
    if (!logits_.defined()) {
      const MemoryPartScope part(MemoryPart::logits);
      logits_ = Tensor::empty_like(chunk.logits);  // the first chunk is the largest
    }
    const Tensor logits = logits_.narrow(0, 0, rows);
    head_->logits(hidden_.narrow(0, first_row, rows), logits);
    return {.logits = logits};
  }

 private:
  std::unique_ptr<Teacher::Head> head_;
  Tensor hidden_, logits_;
};

class LiveTargets final : public TargetSource {
 public:
  explicit LiveTargets(std::unique_ptr<Teacher> teacher) : teacher_(std::move(teacher)) {}
  void prepare(const ObjectiveInput& in, TeacherStates* states) override { hidden_ = teacher_->hidden(in, states); }
  [[nodiscard]] std::unique_ptr<TargetRows> take_rows() override {
    return std::make_unique<LiveRows>(teacher_->head(), std::move(hidden_));
  }
  [[nodiscard]] const nn::WeightOffloader* offloader() const noexcept override { return teacher_->offloader(); }

 private:
  std::unique_ptr<Teacher> teacher_;
  Tensor hidden_;  // hidden states of the teacher
};

class StoredRows final : public TargetRows {
 public:
  explicit StoredRows(DivergenceTarget all) : all_(std::move(all)) {}
  [[nodiscard]] DivergenceTarget of(const CrossEntropyArgs& chunk, std::int64_t first_row) override {
    const auto part = [&](const Tensor& whole) { return whole.narrow(0, first_row, chunk.logits.size(0)); };
    return {.ids = part(all_.ids), .log_probs = part(all_.log_probs), .tail = part(all_.tail)};
  }

 private:
  DivergenceTarget all_;
};

class StoredTargetSource final : public TargetSource {
 public:
  StoredTargetSource(TargetsOfRun run, std::int64_t k) : run_(std::move(run)), k_(k) {}

  void prepare(const ObjectiveInput& in, TeacherStates* /*states*/) override {
    const MemoryScope scope(MemoryCategory::data);
    const std::int64_t n = in.labels.numel();
    const Device device = in.labels.device();
    if (run_.targets == nullptr) {
      all_ = {.ids = Tensor::empty({n, k_}, DType::i32, device),
              .log_probs = Tensor::empty({n, k_}, DType::f32, device),
              .tail = Tensor::empty({n}, DType::f32, device)};
      return;
    }
    const Tensor ids = Tensor::empty_pinned({n, k_}, DType::i32, device),
                 log_probs = Tensor::empty_pinned({n, k_}, DType::f32, device),
                 tail = Tensor::empty_pinned({n}, DType::f32, device);
    run_.targets->fill(*run_.data, in.batch, ids, log_probs, tail);
    all_ = {.ids = ids.to(device), .log_probs = log_probs.to(device), .tail = tail.to(device)};
  }
  [[nodiscard]] std::unique_ptr<TargetRows> take_rows() override {
    return std::make_unique<StoredRows>(std::exchange(all_, {}));
  }

 private:
  TargetsOfRun run_;
  std::int64_t k_;
  DivergenceTarget all_;  // targets of the micro-batch
};

}  // namespace

std::unique_ptr<TargetSource> live_targets(std::unique_ptr<Teacher> teacher) {
  return std::make_unique<LiveTargets>(std::move(teacher));
}

std::unique_ptr<TargetSource> stored_targets(TargetsOfRun run, std::int64_t k) {
  return std::make_unique<StoredTargetSource>(std::move(run), k);
}

}  // namespace quench
