#include "autograd/recompute.h"

namespace quench::autograd {

std::vector<Variable> recompute(const Region& region, std::vector<Variable> inputs) {
  if (Tape::current() == nullptr) return region(inputs);

  std::vector<Variable> outputs;
  std::vector<Tape::Input> dependencies(inputs.begin(), inputs.end());
  {
    std::vector<Variable> detached;
    for (const Variable& input : inputs) detached.push_back(input.detach());
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
    return [region, inputs, upstream, pass = Tape::current()->pass()] {
      std::vector<Variable> fresh;
      for (const Variable& input : inputs) {
        Variable copy = input.detach();
        // Accumulates directly into the outer variable.
        if (input.requires_grad()) copy.set_gradient(input.gradient());
        fresh.push_back(copy);
      }
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
