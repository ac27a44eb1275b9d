#include "train/objectives/distillation/run/teacher.h"

#include <utility>

#include "core/ops/gemm.h"
#include "recipes/base_kernels.h"
#include "train/step/train_step.h"

namespace quench {
namespace {

class PlainHead final : public Teacher::Head {
 public:
  explicit PlainHead(const nn::Weight& weight) : weight_(weight.acquire()) {}
  void logits(const Tensor& hidden, const Tensor& out) override {
    gemm({.a = hidden, .b = weight_.value(), .c = out, .transpose_b = true});
  }

 private:
  nn::Weight::Acquired weight_;
};

class LowPrecisionHead final : public Teacher::Head {
 public:
  LowPrecisionHead(std::unique_ptr<HeadGemms> gemms, const nn::Weight& weight)
      : gemms_(std::move(gemms)), weight_(weight.acquire()) {}
  void logits(const Tensor& hidden, const Tensor& out) override { gemms_->logits(hidden, out); }

 private:
  std::unique_ptr<HeadGemms> gemms_;
  nn::Weight::Acquired weight_;  // one copy or gather for all chunks
};

class BaseTeacher final : public Teacher {
 public:
  explicit BaseTeacher(nn::CausalLm& student) : student_(student) {}

  Tensor hidden(const ObjectiveInput& in, nn::LayerOutputs* outputs) override {
    const autograd::NoGrad no_grad;
    const recipes::BaseKernels base(student_);
    nn::ForwardContext context = in.context;
    context.layer_outputs = outputs;
    return student_.hidden(in.ids, context).value();
  }
  std::unique_ptr<Head> head() override {
    const recipes::BaseKernels base(student_);  // not a trained copy (lora.modules_to_save)
    return std::make_unique<PlainHead>(student_.head_weight());
  }

 private:
  nn::CausalLm& student_;
};

class FrozenTeacher final : public Teacher {
 public:
  explicit FrozenTeacher(FrozenModel teacher) : teacher_(std::move(teacher)) {}

  Tensor hidden(const ObjectiveInput& in, nn::LayerOutputs* outputs) override {
    const autograd::NoGrad no_grad;
    nn::ForwardContext context = batch_context(*teacher_.model, in.batch);
    context.layer_outputs = outputs;
    return teacher_.model->hidden(in.ids, context).value();
  }
  std::unique_ptr<Head> head() override {
    if (std::unique_ptr<HeadGemms> gemms = teacher_.model->head_gemms())
      return std::make_unique<LowPrecisionHead>(std::move(gemms), teacher_.model->head_weight());
    return std::make_unique<PlainHead>(teacher_.model->head_weight());
  }
  [[nodiscard]] const nn::WeightOffloader* offloader() const noexcept override { return teacher_.offloader.get(); }

 private:
  FrozenModel teacher_;
};

}  // namespace

std::unique_ptr<Teacher> base_teacher(nn::CausalLm& student) {
  return std::make_unique<BaseTeacher>(student);
}

std::unique_ptr<Teacher> frozen_teacher(FrozenModel teacher) {
  return std::make_unique<FrozenTeacher>(std::move(teacher));
}

}  // namespace quench
