// SM90 GEMMs of a build without sm_90a.

#include "core/cuda/sm90/kernels.h"

namespace quench::cuda {

bool grouped_gemm_sm90(const OpLaunch&, const GroupedGemmArgs&) {
  return false;
}
bool grouped_wgrad_sm90(const OpLaunch&, const GroupedWgradArgs&) {
  return false;
}
bool grouped_float8_gemm_sm90(const OpLaunch&, const GroupedFloat8GemmArgs&) {
  return false;
}
bool grouped_float8_wgrad_sm90(const OpLaunch&, const GroupedFloat8WgradArgs&) {
  return false;
}
bool block_float8_gemm_sm90(const OpLaunch&, const BlockFloat8GemmArgs&) {
  return false;
}
bool block_float8_wgrad_sm90(const OpLaunch&, const BlockFloat8WgradArgs&) {
  return false;
}
bool int8_gemm_sm90(const OpLaunch&, const ScaledGemmArgs&) {
  return false;
}
bool low_rank_gemm_sm90(const OpLaunch&, const LowRankGemmArgs&) {
  return false;
}
bool symmetric_gemm_sm90(const OpLaunch&, const SymmetricGemmArgs&) {
  return false;
}
bool packed_gemm_sm90(const OpLaunch&, const PackedLinearArgs&) {
  return false;
}

}  // namespace quench::cuda
