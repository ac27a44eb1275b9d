// Slots of the few-row and the tiled GEMM, whose kernels are compiled for every level.

#include "core/cpu/gemm_tiled.h"
#include "core/cpu/gemv.h"

namespace quench {

constinit KernelSlot<GemmArgs> cpu::gemv_slot("gemm");
constinit KernelSlot<GemmArgs> cpu::tiled_gemm_slot("gemm");

}  // namespace quench
