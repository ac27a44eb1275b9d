#include <array>

#include "autograd/functions.h"
#include "core/ops/embedding.h"
#include "core/ops/swiglu.h"

namespace quench::autograd {

Variable swiglu(const Variable& gate_up) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = gate_up.value();
  Variable out(Tensor::empty({in.size(0), in.size(1) / 2}, in.dtype(), in.device()));
  quench::swiglu({in, out.value()});
  const bool recorded = Tape::record("swiglu", std::array{gate_up}, std::array{&out}, [&] {
    return [in, din = gate_up.gradient(), dout = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dx = Tensor::empty_like(in);
      swiglu_backward({.dout = dout->value(), .gate_up = in, .dgate_up = dx});
      if (din) din->contribute(dx);
    };
  });
  if (recorded)
    out.set_recompute([in] {
      const MemoryScope again_scope(MemoryCategory::workspace);
      const Tensor again = Tensor::empty({in.size(0), in.size(1) / 2}, in.dtype(), in.device());
      quench::swiglu({in, again});
      return again;
    });
  return out;
}

Variable embedding(const Variable& table, const Tensor& ids) {
  const MemoryScope scope(MemoryCategory::activations);
  Variable out(Tensor::empty({ids.size(0), table.value().size(1)}, table.value().dtype(), table.value().device()));
  quench::embedding({table.value(), ids, out.value()});
  Tape::record("embedding", std::array{table}, std::array{&out}, [&] {
    return [ids, dtable = table.gradient(), dout = out.gradient()] {
      GradientTarget into = dtable->target();
      if (!into.accumulate) into.tensor.zero();
      embedding_backward({.dout = dout->value(), .ids = ids, .dtable = into.tensor});
    };
  });
  return out;
}

}  // namespace quench::autograd
