#include "autograd/token_dispatcher.h"

#include <array>
#include <numeric>

namespace quench::autograd {
namespace {

// Output of an op whose result is in flight: an edge of the tape without a value.
Variable edge(Device device) {
  return Variable(Tensor::empty({1}, DType::f32, device));
}

void reach(const Variable& edge) {
  edge.gradient()->contribute(edge.value());
}

}  // namespace

std::int64_t GroupRowCounts::sent_rows() const {
  return std::accumulate(sent.begin(), sent.end(), std::int64_t{0});
}
std::int64_t GroupRowCounts::received_rows() const {
  return std::accumulate(received.begin(), received.end(), std::int64_t{0});
}

struct RowDispatch::State {
  const TokenDispatcher* dispatcher;
  std::vector<GroupRowCounts> groups;
  bool rows_wanted, weights_wanted;  // gradients
  std::unique_ptr<TokenDispatcher::Dispatch> forward;
  std::unique_ptr<TokenDispatcher::Combine> backward;
};

RowDispatch::RowDispatch(const Variable& x, const Variable& weights, const TokenDispatcher& dispatcher,
                         std::vector<GroupRowCounts> groups) {
  std::int64_t rows = 0;
  for (const GroupRowCounts& group : groups) rows += group.sent_rows();
  QUENCH_CHECK(x.value().rank() == 2 && x.value().size(0) == rows && weights.value().shape() == Shape({rows, 1}),
               "dispatch: {} rows to move of {} and {}, expected [N,W] and [N,1]", rows, x.value().describe(),
               weights.value().describe());
  const MemoryScope scope(MemoryCategory::activations);
  state_ = std::make_shared<State>(&dispatcher, std::move(groups), x.requires_grad(), weights.requires_grad());
  state_->forward = dispatcher.dispatch({x.value(), weights.value()}, state_->groups,
                                        TokenDispatcher::Order::first_to_last, "dispatch");
  std::vector<Variable*> outputs;
  for (std::size_t group = 0; group < state_->groups.size(); ++group) in_flight_.push_back(edge(x.value().device()));
  for (Variable& output : in_flight_) outputs.push_back(&output);
  Tape::record("dispatch", {x, weights}, outputs, [&] {
    return [state = state_, dx = x.gradient(), dweights = weights.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const TokenRows gradient = std::exchange(state->backward, nullptr)->wait();
      if (dx) dx->contribute(gradient.rows);
      if (dweights) dweights->contribute(gradient.values);
    };
  });
}

RowDispatch::Group RowDispatch::wait(std::size_t group) {
  const MemoryScope scope(MemoryCategory::activations);
  auto [rows, values] = state_->forward->wait(group);
  if (group + 1 == state_->groups.size()) state_->forward.reset();
  Group out{Variable(std::move(rows)), Variable(std::move(values)), std::make_shared<LateWork>()};
  // A gradient is made for what is wanted alone.
  std::vector<Variable*> outputs;
  if (state_->rows_wanted) outputs.push_back(&out.rows);
  if (state_->weights_wanted) outputs.push_back(&out.weights);
  const Variable& in = in_flight_.at(group);
  const bool recorded = Tape::record("dispatched rows", {in}, outputs, [&] {
    return [state = state_, group, in, rows_of = out.rows.gradient(), weights_of = out.weights.gradient(),
            late = out.late] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const TokenRows gradient{rows_of ? rows_of->value() : Tensor(), weights_of ? weights_of->value() : Tensor()};
      QUENCH_CHECK((!rows_of || gradient.rows.defined()) && (!weights_of || gradient.values.defined()),
                   "dispatch: rows or weights without a gradient");
      if (!state->backward) state->backward = state->dispatcher->combine(state->groups, "dispatch gradient");
      state->backward->start(group, gradient);
      reach(in);
      late->run();
    };
  });
  if (!recorded) out.late = nullptr;
  return out;
}

struct RowCombine::State {
  const TokenDispatcher* dispatcher;
  std::vector<GroupRowCounts> groups;
  std::unique_ptr<TokenDispatcher::Combine> forward;
  std::unique_ptr<TokenDispatcher::Dispatch> backward;
};

RowCombine::RowCombine(const TokenDispatcher& dispatcher, std::vector<GroupRowCounts> groups)
    : state_(std::make_shared<State>(&dispatcher, std::move(groups))) {
  state_->forward = dispatcher.combine(state_->groups, "combine");
}

void RowCombine::start(std::size_t group, const Variable& y) {
  const MemoryScope scope(MemoryCategory::activations);
  const GroupRowCounts& counts = state_->groups.at(group);
  QUENCH_CHECK(y.value().rank() == 2 && y.value().size(0) == counts.received_rows(),
               "combine: {} rows to move of {}, expected [N,W]", counts.received_rows(), y.value().describe());
  state_->forward->start(group, {y.value(), {}});
  Variable& out = in_flight_.emplace_back(edge(y.value().device()));
  Tape::record("combined rows", {y}, std::array{&out}, [&] {
    return [state = state_, group, dy = y.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      dy->contribute(state->backward->wait(group).rows);
    };
  });
}

Variable RowCombine::wait() {
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(std::exchange(state_->forward, nullptr)->wait().rows);
  const std::vector<Tape::Input> inputs(in_flight_.begin(), in_flight_.end());
  Tape::record("combine", inputs, std::array{&out}, [&] {
    return [state = state_, in_flight = in_flight_, dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      state->backward = state->dispatcher->dispatch({dout_of->value(), {}}, state->groups,
                                                    TokenDispatcher::Order::last_to_first, "combine gradient");
      for (const Variable& group : in_flight)
        if (group.requires_grad()) reach(group);
    };
  });
  return out;
}

}  // namespace quench::autograd
