#include "core/device/gpu_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace quench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

TEST(GpuSupport, AnOldDriverIsNamedWithWhatItSupportsAndWhatIsNeeded) {
  EXPECT_EQ(old_driver_message(12040, 13050),
            "the NVIDIA driver supports CUDA 12.4, this build needs 13.0 (driver 580 or newer); update the driver, or "
            "build with a CUDA 12 toolkit");
  EXPECT_EQ(
      old_driver_message(11080, 12040),
      "the NVIDIA driver supports CUDA 11.8, this build needs 12.0 (driver 525.60.13 or newer); update the driver");
}

TEST(GpuSupport, AGpuBeforeAmpereIsNotAskedToBuild) {
  EXPECT_THAT(no_kernels_message(1, "Tesla T4", 75),
              AllOf(HasSubstr("device 1 (Tesla T4) has compute capability 7.5; 8.0 or later"),
                    HasSubstr("--device cpu"), Not(HasSubstr("CMAKE"))));
  EXPECT_THAT(no_kernels_message(0, "NVIDIA A100", 80), HasSubstr("-DCMAKE_CUDA_ARCHITECTURES=80"));
  EXPECT_THAT(no_kernels_message(0, "NVIDIA B300", 103), HasSubstr("10.3, for which this build has no kernels"));
}

TEST(GpuSupport, DescriptionsAreReadBack) {
  const RankGpu gpu = decode_gpu(encode({"NVIDIA H100 80GB HBM3", {90, 80}}));
  EXPECT_EQ(gpu.name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpu.capability.device, 90);
  EXPECT_EQ(gpu.capability.code, 80);
  for (const char* text : {"", "90", "90 x", "90 80", "a b c"}) EXPECT_THROW((void)decode_gpu(text), Error) << text;
}

TEST(GpuSupport, GpusOfOneRunHaveEqualCapabilities) {
  const RankGpu a100{"NVIDIA A100", {80, 80}}, a30{"NVIDIA A30", {80, 80}}, h100{"NVIDIA H100", {90, 90}},
      lowered{"NVIDIA H100", {80, 80}}, portable{"NVIDIA H100", {90, 80}};
  EXPECT_NO_THROW(require_equal_capabilities({}));
  EXPECT_NO_THROW(require_equal_capabilities(std::vector{h100, h100}));
  EXPECT_NO_THROW(require_equal_capabilities(std::vector{a100, a30, lowered}));
  EXPECT_THAT(
      [&] {
        require_equal_capabilities(std::vector{h100, h100, a100, a30});
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("rank 2 has NVIDIA A100 (8.0)"), HasSubstr("rank 0 has NVIDIA H100 (9.0)"),
                                 HasSubstr("QUENCH_CUDA_CAPABILITY=8.0"))));
  EXPECT_THAT(
      [&] {
        require_equal_capabilities(std::vector{h100, portable});
      },
      ThrowsMessage<Error>(HasSubstr("rank 1 has NVIDIA H100 (9.0 with kernels of 8.0)")));
}

}  // namespace
}  // namespace quench
