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
                         bool activations, std::string_view label) {
  QUENCH_CHECK(x.value().rank() == 2 && x.value().size(0) == counts.sent_rows(),
               "all_to_all_rows: {} to move of {}, expected [N,W]", counts.sent_rows(), x.value().describe());
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(dispatcher.move(x.value(), counts, activations, label));
  Tape::record("all_to_all_rows", {x}, std::array{&out}, [&] {
    return [&dispatcher, back = counts.reversed(), activations, label = fmt::format("{} gradient", label),
            dx = x.gradient(), dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      dx->contribute(dispatcher.move(dout_of->value(), back, activations, label));
    };
  });
  return out;
}

}  // namespace quench::autograd
