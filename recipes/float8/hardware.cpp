#include "recipes/float8/hardware.h"

#include <fmt/core.h>

#include "core/ops/block_scaled_gemm.h"

namespace quench::recipes {
namespace {

// First compute capabilities with float8 in mma.sync, and with rowwise scales in cuBLASLt (not all later ones).
constexpr int kFloat8Mma = 89, kRowwiseLibrary = 90;

std::string dotted(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

}  // namespace

GemmPath float8_path(Device device, Float8GemmKind kind) {
  if (device.is_cpu()) return GemmPath::emulated;
  if (kind == Float8GemmKind::int8) return GemmPath::native;  // since SM80
  if (device.is_meta() || !has_backend(device.type) || backend(device.type).device_count() == 0)
    return GemmPath::native;
  const ComputeCapability capability = backend(device.type).compute_capability(device);
  const bool library = (kind == Float8GemmKind::tensorwise && capability.device >= kFloat8Mma) ||
                       (kind == Float8GemmKind::rowwise && capability.device == kRowwiseLibrary);
  return library || capability.code >= kFloat8Mma ? GemmPath::native : GemmPath::fallback;
}

bool has_float8_gemms(Device device) {
  return !device.is_cpu() && float8_path(device, Float8GemmKind::tensorwise) == GemmPath::native;
}

std::string describe_float8_path(const Recipe& recipe, bool emulate, Device device) {
  if (recipe.capabilities.float8.empty()) return {};
  const GemmPath path = emulate ? GemmPath::emulated : float8_path(device, recipe.capabilities.float8_kind);
  const std::string_view codes = recipe.capabilities.codes();
  switch (path) {
    case GemmPath::native: return fmt::format("{} GEMMs: native ({} tensor cores)", codes, codes);
    case GemmPath::fallback:
      return fmt::format(
          "float8 GEMMs: fallback: compute capability {} has no float8 tensor cores, the quantized values are "
          "multiplied in bf16 with f32 accumulators; correct, but slower than recipe bf16",
          dotted(backend(device.type).compute_capability(device).device));
    case GemmPath::emulated: break;
  }
  return fmt::format("{} GEMMs: emulated: the quantized values are multiplied in f32{}", codes,
                     emulate ? " (recipe.emulate)" : "");
}

GemmPath mxfp8_path(Device device) {
  if (device.is_cpu()) return GemmPath::emulated;
  if (device.is_meta() || !has_backend(device.type) || backend(device.type).device_count() == 0)
    return GemmPath::fallback;
  return has_block_scaled_gemms(device, ElementFormat::e4m3) ? GemmPath::native : GemmPath::fallback;
}

std::string describe_mxfp8_path(const Recipe& recipe, bool emulate, Device device) {
  if (!recipe.capabilities.mxfp8) return {};
  const GemmPath path = mxfp8_path(device);
  if (path == GemmPath::emulated)
    return "emulated: the quantized values are multiplied in the dtype of the activations";
  if (path == GemmPath::native && !emulate)
    return "native for dense layers (block-scaled tensor cores, not tested on this hardware); experts: bf16";
  return fmt::format("fallback: {}, the quantized values are multiplied in bf16 with f32 accumulators",
                     path == GemmPath::native ? "recipe.emulate" : "no block-scaled tensor cores");
}

}  // namespace quench::recipes
