#pragma once
// Dense GEMM of our own: the only one where oneDNN generates no code, that of batch_invariant() elsewhere, since an
// element's order of sums depends on K alone.

#include "core/ops/gemm.h"

namespace quench::cpu {

// Validated by gemm().
extern constinit KernelSlot<GemmArgs> tiled_gemm_slot;

}  // namespace quench::cpu
