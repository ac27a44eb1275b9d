#include "autograd/recompute.h"

namespace quench::autograd {
namespace {

// Input of a region between its two runs.
class SavedInput {
 public:
  explicit SavedInput(const Variable& input) : gradient_(input.gradient()), value_(input.value()) {
    ActivationOffloader* offloader = Tape::current()->offloader();
    if (offloader == nullptr || !offloader->wanted()) return;
    offloaded_ = offloader->send(std::exchange(value_, Tensor()));
    offloader_ = offloader;
  }
  // Accumulates directly into the gradient of the input.
  [[nodiscard]] Variable get() const {
    Variable copy(offloaded_ ? offloader_->get(*offloaded_) : value_);
    if (gradient_) copy.set_gradient(gradient_);
    return copy;
  }

 private:
  std::shared_ptr<Gradient> gradient_;
  Tensor value_;
  std::shared_ptr<OffloadedTensor> offloaded_;
  ActivationOffloader* offloader_ = nullptr;
};

}  // namespace

std::vector<Variable> recompute(const Region& region, std::vector<Variable> inputs) {
  if (Tape::current() == nullptr) return region(inputs);

  std::vector<Variable> outputs;
  std::vector<Tape::Input> dependencies(inputs.begin(), inputs.end());
  // Sent before the region runs, which hides the copy.
  std::vector<SavedInput> saved(inputs.begin(), inputs.end());
  {
    std::vector<Variable> detached;
    for (const Variable& input : inputs) detached.push_back(input.detach());
    const PassScope pass(Tape::current()->pass());
    const UseCounter counter;
    outputs = region(detached);
    for (const auto& gradient : counter.used()) {
      Variable leaf;
      leaf.set_gradient(gradient);
      dependencies.push_back(leaf);
    }
  }
  std::vector<Variable*> output_pointers;
  for (Variable& output : outputs) output_pointers.push_back(&output);
  Tape::record("recompute", dependencies, output_pointers, [&] {
    std::vector<std::shared_ptr<Gradient>> upstream;
    for (const Variable& output : outputs) upstream.push_back(output.gradient());
    return [region, saved = std::move(saved), upstream, pass = Tape::current()->pass()]() mutable {
      std::vector<Variable> fresh;
      for (const SavedInput& input : saved) fresh.push_back(input.get());
      saved.clear();
      Tape tape;
      tape.set_pass(pass);
      {
        const TapeScope scope(tape);
        const std::vector<Variable> again = region(fresh);
        QUENCH_CHECK(again.size() == upstream.size(), "recompute: the region gave {} outputs, then {}", upstream.size(),
                     again.size());
        for (std::size_t i = 0; i < again.size(); ++i)
          if (upstream[i]->has_value() && again[i].requires_grad())
            again[i].gradient()->contribute(upstream[i]->value());
      }
      for (const auto& gradient : upstream) gradient->release();
      tape.backward();
    };
  });
  return outputs;
}

}  // namespace quench::autograd
