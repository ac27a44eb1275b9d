#pragma once
// Tape of differentiable functions for one forward and one backward pass, in one thread. A record is destroyed after it
// has run, which frees its saved tensors.

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "autograd/offload.h"
#include "autograd/weight.h"

namespace quench::autograd {

// From least recomputation to least memory.
enum class Recompute {
  none,
  selective,  // outputs of norms and activations are recomputed
  full,       // each decoder layer saves only its input
};

class Tape {
 public:
  explicit Tape(Recompute recompute = Recompute::none) : recompute_(recompute) {}
  // Records that have not run are dropped: no gradient, and no ready hook for them.
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // nullptr outside a TapeScope or inside NoGrad.
  [[nodiscard]] static Tape* current() noexcept;

  // Gradient of a variable or weight; null if none is required.
  struct Input {
    Input(const Variable& variable) : gradient(variable.gradient()) {}  // NOLINT(google-explicit-constructor)
    Input(const Weight& weight) : gradient(weight.gradient()) {}        // NOLINT(google-explicit-constructor)
    std::shared_ptr<Gradient> gradient;
  };

  // Records a function. `inputs` and `outputs`, which get their Gradient objects here, list every gradient that it
  // writes or reads. An output that is a copy of a recorded variable loses the quantization outputs and the recompute
  // handle of that. Returns false and records nothing if no input requires a gradient.
  static bool record(std::string_view name, std::span<const Input> inputs, std::span<Variable* const> outputs,
                     const std::function<std::function<void()>()>& make_backward);
  static bool record(std::string_view name, std::initializer_list<Input> inputs, std::span<Variable* const> outputs,
                     const std::function<std::function<void()>()>& make_backward) {
    return record(name, std::span(inputs.begin(), inputs.size()), outputs, make_backward);
  }

  static void mark(std::function<void()> callback);

  // Backward pass. `root` must be f32 [1] recorded on this tape, which then is empty, or a leaf; its gradient is set to
  // 1. Else throws invalid_argument. A variable of another tape is a constant: gradients end there.
  void backward(const Variable& root);
  // From the gradient of a root of any shape; a root without gradient records nothing.
  void backward(const Variable& root, const Tensor& gradient);
  void backward();

  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }
  [[nodiscard]] Recompute recompute() const noexcept { return recompute_; }

  // Number of the pass in the run: the step of random draws, the same in a recompute.
  void set_pass(std::uint64_t pass) noexcept { pass_ = pass; }
  [[nodiscard]] std::uint64_t pass() const noexcept { return pass_; }

  // Pass of the current tape, or where none records of the PassScope; nullopt outside both, as in inference.
  [[nodiscard]] static std::optional<std::uint64_t> current_pass() noexcept;

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

// Scope in which `tape`, which must outlive it, is the calling thread's current tape.
class TapeScope {
 public:
  explicit TapeScope(Tape& tape) noexcept;
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  Tape* previous_;
};

// Scope without a current tape.
class NoGrad {
 public:
  NoGrad() noexcept;
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Tape* previous_;
};

// Scope of work that is not recorded but belongs to a training pass, whose random draws it repeats when it is recorded.
class PassScope {
 public:
  explicit PassScope(std::uint64_t pass) noexcept;
  ~PassScope();
  PassScope(const PassScope&) = delete;
  PassScope& operator=(const PassScope&) = delete;

 private:
  std::optional<std::uint64_t> previous_;
};

// Disables recording, and collects the gradients of the leaves in use (for recompute regions).
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

// Value that a backward function needs: the tensor, or the means to get it again.
class Saved {
 public:
  Saved() = default;
  // Under selective recompute, and of values that were left out or substituted, saves the recompute handle if there is
  // one. Throws as Variable::value() if the value is not to be had.
  explicit Saved(const Variable& variable);
  explicit Saved(Tensor tensor) : tensor_(std::move(tensor)) {}
  // For a large tensor that is not written any more and read once: may be offloaded.
  [[nodiscard]] static Saved large(const Variable& variable);
  // Saves the recompute handle, which must exist, at any recompute level.
  [[nodiscard]] static Saved recomputed(const Variable& variable);
  [[nodiscard]] Tensor get() const;
  // Defers `use` until the producer recomputes the value in the backward pass; false if it will not: use get(). The
  // producer may answer the use's request, or give the value alone.
  [[nodiscard]] bool defer(RecomputeHandle::Use use) const;
  [[nodiscard]] bool defer(std::function<void(const Tensor&)> use) const;

 private:
  Tensor tensor_;
  std::shared_ptr<OffloadedTensor> offloaded_;
  ActivationOffloader* offloader_ = nullptr;
  std::shared_ptr<RecomputeHandle> recompute_;
};

}  // namespace quench::autograd
