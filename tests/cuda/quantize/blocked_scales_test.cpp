// The tile layout of block scales on the GPU against the CPU's.

#include "core/ops/quantize/blocked_scales.h"

#include "core/number/blocked_scale.h"
#include "tests/core/ops/quantize/blocked_scales_cases.h"
#include "tests/cuda/cuda_testing.h"

namespace quench::testing {
namespace {

TEST(CudaBlockedScales, BytesMatchCpu) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{128, 4},
                                      {1, 1},
                                      {3, 5},
                                      {129, 4},
                                      {130, 13},
                                      {513, 66},
                                      {32, 257},
                                      {8192, 128},
                                      {4099, 127}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, columns));
    const Tensor scales = blocked_scale_bytes_case(rows, columns), blocked = to_blocked(scales);
    Tensor out = Tensor::empty(blocked.shape(), DType::u8);
    std::fill_n(out.data<std::uint8_t>(), out.numel(), std::uint8_t{0xAA});
    out = out.to(kGpu);
    to_blocked({scales.to(kGpu), out});
    EXPECT_TRUE(same_bits(on_cpu(out), blocked));
  }
}

// A view that begins at any byte.
TEST(CudaBlockedScales, UnalignedScales) {
  const Tensor bytes = blocked_scale_bytes_case(1, 130 * 8 + 1);
  const auto view = [](const Tensor& t) { return t.view({130 * 8 + 1}).narrow(0, 1, 130 * 8).view({130, 8}); };
  EXPECT_TRUE(same_bits(on_cpu(to_blocked(view(bytes.to(kGpu)))), to_blocked(view(bytes))));
}

}  // namespace
}  // namespace quench::testing
