#pragma once
// The tape: differentiable functions record what to do backwards; backward() walks the record in reverse.
//
// A tape is used for one forward and one backward pass and belongs to one thread. Each record is dropped as soon as it
// has run, which frees what it saved, so that memory falls while the backward pass proceeds.

#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/offload.h"
#include "autograd/weight.h"

namespace quench::autograd {

// What a forward pass keeps for the backward pass, from least recomputation to least memory.
enum class Recompute {
  none,       // everything a backward function reads is saved
  selective,  // outputs of norms and activations are made again from their inputs
  full,       // each unit (decoder layer) keeps only its input and runs again
};

class Tape {
 public:
  explicit Tape(Recompute recompute = Recompute::none) : recompute_(recompute) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // The tape functions record on, or nullptr: outside a TapeScope, or inside NoGrad.
  [[nodiscard]] static Tape* current() noexcept;

  // The gradient of something that a function reads; null where none is wanted.
  struct Input {
    Input(const Variable& variable) : gradient(variable.gradient()) {}  // NOLINT(google-explicit-constructor)
    Input(const Weight& weight) : gradient(weight.gradient()) {}        // NOLINT(google-explicit-constructor)
    std::shared_ptr<Gradient> gradient;
  };

  // Adds a step. `inputs` and `outputs` name everything whose gradient the function writes or reads; `backward`
  // finds those gradients through the Gradient objects it captured. Outputs receive Gradient objects here.
  // Nothing is recorded, and false returned, when no input wants a gradient.
  static bool record(std::string_view name, std::span<const Input> inputs, std::span<Variable* const> outputs,
                     const std::function<std::function<void()>()>& make_backward);
  static bool record(std::string_view name, std::initializer_list<Input> inputs, std::span<Variable* const> outputs,
                     const std::function<std::function<void()>()>& make_backward) {
    return record(name, std::span(inputs.begin(), inputs.size()), outputs, make_backward);
  }

  // Adds a callback that runs when the reverse walk reaches this point (unit hooks: prefetch, resharding).
  static void mark(std::function<void()> callback);

  // Runs everything in reverse. `root` must be f32 [1]; its gradient is set to 1.
  void backward(const Variable& root);
  // The same with gradients of the outputs already contributed by the caller.
  void backward();

  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  [[nodiscard]] Recompute recompute() const noexcept { return recompute_; }

  // The number of this pass among those of a run: the step of the random draws (core/number/random.h) that functions
  // make, so that a pass that runs again, as a whole or in parts, sees the same ones. 0 unless somebody says.
  void set_pass(std::uint64_t pass) noexcept { pass_ = pass; }
  [[nodiscard]] std::uint64_t pass() const noexcept { return pass_; }

  // Where saved tensors may wait for the backward pass; nullptr: on the device.
  void set_offloader(ActivationOffloader* offloader) noexcept { offloader_ = offloader; }
  [[nodiscard]] ActivationOffloader* offloader() const noexcept { return offloader_; }

 private:
  friend class TapeScope;
  friend class NoGrad;
  friend class UseCounter;

  struct Node {
    std::string_view name;
    std::vector<std::shared_ptr<Gradient>> inputs;
    std::vector<std::shared_ptr<Gradient>> outputs;
    std::function<void()> backward;
  };

  std::vector<Node> nodes_;
  Recompute recompute_;
  std::uint64_t pass_ = 0;
  ActivationOffloader* offloader_ = nullptr;
};

// Makes a tape current for the calling thread; scopes nest.
class TapeScope {
 public:
  explicit TapeScope(Tape& tape) noexcept;
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  Tape* previous_;
};

// Turns recording off for the calling thread.
class NoGrad {
 public:
  NoGrad() noexcept;
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape* previous_;
};

// Runs no recording but collects the gradients of the leaves that functions would have used (for recompute regions).
class UseCounter {
 public:
  UseCounter() noexcept;
  ~UseCounter();
  UseCounter(const UseCounter&) = delete;
  UseCounter& operator=(const UseCounter&) = delete;
  [[nodiscard]] const std::vector<std::shared_ptr<Gradient>>& used() const noexcept { return used_; }

 private:
  friend class Tape;
  std::vector<std::shared_ptr<Gradient>> used_;
  UseCounter* previous_;
  NoGrad no_grad_;
};

// A tensor kept for the backward pass, or the way to make it again.
class Saved {
 public:
  Saved() = default;
  // Under selective recompute a variable that knows how to be recomputed is saved that way.
  explicit Saved(const Variable& variable);
  explicit Saved(Tensor tensor) : tensor_(std::move(tensor)) {}
  // The same for a large tensor that nobody writes to any more and that is read once: it may wait in host memory.
  [[nodiscard]] static Saved large(const Variable& variable);
  // The way to make the variable again, which it has, whatever the level of recomputation.
  [[nodiscard]] static Saved recomputed(const Variable& variable);
  [[nodiscard]] Tensor get() const;
  // Puts a use off until the value has been made again anyway, and returns true; false when that will not happen:
  // then get() is the way.
  [[nodiscard]] bool defer(std::function<void(const Tensor&)> use) const;

 private:
  Tensor tensor_;
  std::shared_ptr<OffloadedTensor> offloaded_;
  ActivationOffloader* offloader_ = nullptr;
  std::shared_ptr<RecomputeHandle> recompute_;
};

}  // namespace quench::autograd
