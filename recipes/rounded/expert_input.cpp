#include "recipes/rounded/expert_input.h"

#include "core/ops/experts/expert_rows.h"

namespace quench::recipes {

using autograd::Tape;

GroupRows rows_of(const Tensor& x, const autograd::ExpertRows& rows, bool tokens) {
  return {.x = x, .ends = rows.ends, .pairs = tokens ? rows.pairs : Tensor(), .choices = rows.choices};
}

Tensor copied(const GroupRows& rows) {
  if (!rows.pairs.defined()) return rows.x;
  const Tensor out = Tensor::empty({rows.rows(), rows.x.size(1)}, rows.x.dtype(), rows.x.device());
  gather_rows({.x = rows.x, .pairs = rows.pairs, .choices = rows.choices, .out = out});
  return out;
}

bool codes_save_memory(const autograd::Variable& x, const GroupRows& rows) {
  if (x.kept_by_producer() || (rows.pairs.defined() && rows.choices > 1)) return false;
  const bool made_again = x.recompute() != nullptr && Tape::current() != nullptr &&
                          Tape::current()->recompute() == autograd::Recompute::selective;
  return !made_again;
}

}  // namespace quench::recipes
