#include "autograd/token_dispatcher.h"

#include <array>
#include <numeric>

namespace quench::autograd {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

std::int64_t RowCounts::sent_rows() const {
  return sum(sent);
}
std::int64_t RowCounts::received_rows() const {
  return sum(received);
}

Variable all_to_all_rows(const Variable& x, const TokenDispatcher& dispatcher, const RowCounts& counts,
                         std::string_view label) {
  QUENCH_CHECK(x.value().rank() == 2 && x.value().size(0) == counts.sent_rows(),
               "all_to_all_rows: {} to move of {}, expected [N,W]", counts.sent_rows(), x.value().describe());
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(dispatcher.move(x.value(), counts, label));
  Tape::record("all_to_all_rows", {x}, std::array{&out}, [&] {
    return [&dispatcher, back = counts.reversed(), label = fmt::format("{} gradient", label), dx = x.gradient(),
            dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      dx->contribute(dispatcher.move(dout_of->value(), back, label));
    };
  });
  return out;
}

std::pair<Variable, Variable> all_to_all_weighted_rows(const Variable& x, const Variable& weights,
                                                       const TokenDispatcher& dispatcher, const RowCounts& counts,
                                                       std::string_view label) {
  const std::int64_t rows = counts.sent_rows();
  QUENCH_CHECK(x.value().rank() == 2 && x.value().size(0) == rows && weights.value().shape() == Shape({rows, 1}),
               "all_to_all_weighted_rows: {} to move of {} and {}, expected [N,W] and [N,1]", rows,
               x.value().describe(), weights.value().describe());
  const MemoryScope scope(MemoryCategory::activations);
  auto [moved, moved_weights] = dispatcher.move_with_values(x.value(), weights.value(), counts, label);
  std::pair out(Variable(std::move(moved)), Variable(std::move(moved_weights)));
  // Only wanted gradients are made and moved.
  std::vector<Variable*> outputs;
  if (x.requires_grad()) outputs.push_back(&out.first);
  if (weights.requires_grad()) outputs.push_back(&out.second);
  Tape::record("all_to_all_weighted_rows", {x, weights}, outputs, [&] {
    return [&dispatcher, back = counts.reversed(), label = fmt::format("{} gradient", label), dx = x.gradient(),
            dweights = weights.gradient(), drows_of = out.first.gradient(), dvalues_of = out.second.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor drows_here = dx ? drows_of->value() : Tensor(),
                   dvalues_here = dweights ? dvalues_of->value() : Tensor();
      QUENCH_CHECK(drows_here.defined() == (dx != nullptr) && dvalues_here.defined() == (dweights != nullptr),
                   "{}: rows or weights without a gradient", label);
      const auto [drows, dvalues] = dispatcher.move_with_values(drows_here, dvalues_here, back, label);
      if (dx) dx->contribute(drows);
      if (dweights) dweights->contribute(dvalues);
    };
  });
  return out;
}

}  // namespace quench::autograd
