// Slot of the few-row GEMM, whose kernels are compiled for every level.

#include "core/cpu/gemv.h"

namespace quench {

constinit KernelSlot<GemmArgs> cpu::gemv_slot("gemm");

}  // namespace quench
