#include "autograd/recompute.h"

#include "autograd/regions/kept_values.h"

namespace quench::autograd {
namespace {

// Input of a region between its two runs.
class SavedInput {
 public:
  SavedInput(const Variable& input, ActivationOffloader* offloader)
      : gradient_(input.gradient()), value_(input.value(), offloader) {}
  // Accumulates directly into the gradient of the input.
  [[nodiscard]] Variable get() const {
    Variable copy(value_.get());
    if (gradient_) copy.set_gradient(gradient_);
    return copy;
  }

 private:
  std::shared_ptr<Gradient> gradient_;
  HeldTensor value_;
};

}  // namespace

std::vector<Variable> recompute(const Region& region, std::vector<Variable> inputs, const RecomputeOptions& options) {
  if (Tape::current() == nullptr) return region(inputs);

  std::vector<Variable> outputs;
  std::vector<Tape::Input> dependencies(inputs.begin(), inputs.end());
  ActivationOffloader* offloader = Tape::current()->offloader();
  if (offloader != nullptr && !offloader->wanted()) offloader = nullptr;
  // Sent before the region runs, which hides the copy.
  std::vector<SavedInput> saved;
  for (const Variable& input : inputs) saved.emplace_back(input, offloader);
  const auto kept = options.keeps_attention ? std::make_shared<KeptValues>(offloader) : nullptr;
  {
    std::vector<Variable> detached;
    for (const Variable& input : inputs) detached.push_back(input.detach());
    const PassScope pass(Tape::current()->pass());
    const KeptValues::Scope keeping(kept.get(), false);
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
    return [region, saved = std::move(saved), kept, upstream, pass = Tape::current()->pass()]() mutable {
      std::vector<Variable> fresh;
      for (const SavedInput& input : saved) fresh.push_back(input.get());
      saved.clear();
      Tape tape;
      tape.set_pass(pass);
      {
        const TapeScope scope(tape);
        const KeptValues::Scope replaying(kept.get(), true);
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
