#include "autograd/tape.h"

#include <algorithm>

#include "core/memory/memory_part.h"

namespace quench::autograd {
namespace {
thread_local Tape* current_tape = nullptr;
thread_local UseCounter* current_counter = nullptr;
thread_local std::optional<std::uint64_t> unrecorded_pass;

// Runs in the calling thread's present part.
std::function<void()> in_this_part(std::function<void()> run) {
  const MemoryPart part = MemoryPartScope::current();
  if (part == MemoryPart::other) return run;
  return [part, run = std::move(run)] {
    const MemoryPartScope scope(part);
    run();
  };
}
}  // namespace

Tape* Tape::current() noexcept {
  return current_tape;
}

std::optional<std::uint64_t> Tape::current_pass() noexcept {
  return current_tape != nullptr ? current_tape->pass() : unrecorded_pass;
}

bool Tape::record(std::string_view name, std::span<const Input> inputs, std::span<Variable* const> outputs,
                  const std::function<std::function<void()>()>& make_backward) {
  // A copy of a recorded variable: its quantized forms and its recompute are those of another value.
  for (Variable* v : outputs)
    if (v->requires_grad()) v->set_value(Tensor(v->value()));
  const bool wanted = std::ranges::any_of(inputs, [](const Input& input) { return input.gradient != nullptr; });
  if (!wanted) return false;
  if (current_counter != nullptr) {
    for (const auto& [gradient] : inputs)
      if (gradient != nullptr && gradient->is_leaf()) current_counter->used_.push_back(gradient);
  }
  if (current_tape == nullptr) return false;
  Node node{name, {}, {}, {}};
  for (const auto& [gradient] : inputs) {
    if (gradient == nullptr) continue;
    gradient->begin_use();
    node.inputs.push_back(gradient);
  }
  for (Variable* v : outputs) {
    v->set_gradient(std::make_shared<Gradient>(v->shape(), v->dtype(), v->device(), false));
    node.outputs.push_back(v->gradient());
  }
  node.backward = in_this_part(make_backward());
  current_tape->nodes_.push_back(std::move(node));
  return true;
}

void Tape::mark(std::function<void()> callback) {
  if (current_tape != nullptr) current_tape->nodes_.push_back({"mark", {}, {}, std::move(callback)});
}

Tape::~Tape() {
  for (const Node& node : nodes_)
    for (const auto& input : node.inputs) input->drop_use();
}

void Tape::backward(const Variable& root) {
  QUENCH_CHECK(root.requires_grad() && root.value().numel() == 1 && root.value().dtype() == DType::f32,
               "backward: the root must be one recorded f32 number, got {}", root.value().describe());
  // The last record, usually.
  const bool recorded = std::any_of(nodes_.rbegin(), nodes_.rend(), [&](const Node& node) {
    return std::ranges::find(node.outputs, root.gradient()) != node.outputs.end();
  });
  QUENCH_CHECK(recorded || root.gradient()->is_leaf(),
               "backward: the root {} is not on this tape; it was recorded on another, or backward() has run",
               root.value().describe());
  float one = 1.0f;
  Tensor seed = root.gradient()->target().tensor;
  seed.copy_from(Tensor::from_host(&one, seed.shape(), DType::f32));
  backward();
}

void Tape::backward(const Variable& root, const Tensor& gradient) {
  if (root.requires_grad()) root.gradient()->contribute(gradient);
  backward();
}

void Tape::backward() {
  const NoGrad no_grad;
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    // Marks have no outputs and always run.
    const bool reached =
        node.outputs.empty() || std::ranges::any_of(node.outputs, [](const auto& g) { return g->valid_; });
    if (reached) node.backward();
    for (const auto& output : node.outputs) output->run_deferred();
    for (const auto& output : node.outputs) output->release();
    node.backward = nullptr;  // frees saved tensors before hooks run
    for (const auto& input : node.inputs) input->end_use();
  }
}

TapeScope::TapeScope(Tape& tape) noexcept : previous_(current_tape) {
  current_tape = &tape;
}
TapeScope::~TapeScope() {
  current_tape = previous_;
}

NoGrad::NoGrad() noexcept : previous_(current_tape) {
  current_tape = nullptr;
}
NoGrad::~NoGrad() {
  current_tape = previous_;
}

PassScope::PassScope(std::uint64_t pass) noexcept : previous_(unrecorded_pass) {
  unrecorded_pass = pass;
}
PassScope::~PassScope() {
  unrecorded_pass = previous_;
}

UseCounter::UseCounter() noexcept : previous_(current_counter) {
  current_counter = this;
}
UseCounter::~UseCounter() {
  current_counter = previous_;
}

Saved::Saved(const Variable& variable) {
  const Tape* tape = Tape::current();
  const bool selective = tape != nullptr && tape->recompute() == Recompute::selective;
  const FusedValue& value = variable.fused();
  if (value.recompute() != nullptr && (selective || value.form() != ValueForm::stored)) {
    recompute_ = value.recompute();
  } else {
    tensor_ = variable.value();
  }
}

Saved Saved::large(const Variable& variable) {
  Saved saved(variable);
  const Tape* tape = Tape::current();
  ActivationOffloader* offloader = tape != nullptr ? tape->offloader() : nullptr;
  if (!saved.recompute_ && offloader != nullptr && offloader->wanted()) {
    saved.offloaded_ = offloader->send(std::exchange(saved.tensor_, Tensor()));
    saved.offloader_ = offloader;
  }
  return saved;
}

Saved Saved::recomputed(const Variable& variable) {
  QUENCH_CHECK(variable.fused().recompute() != nullptr, "recomputed: a value of shape {} without recompute handle",
               variable.shape().to_string());
  Saved saved;
  saved.recompute_ = variable.fused().recompute();
  return saved;
}

Tensor Saved::get() const {
  if (offloaded_) return offloader_->get(*offloaded_);
  return recompute_ ? recompute_->value() : tensor_;
}

bool Saved::defer(RecomputeHandle::Use use) const {
  return recompute_ != nullptr && recompute_->defer(std::move(use));
}

bool Saved::defer(std::function<void(const Tensor&)> use) const {
  return defer(RecomputeHandle::Use{[use = std::move(use)](const FusedValue& value) { use(value.value()); }});
}

}  // namespace quench::autograd
