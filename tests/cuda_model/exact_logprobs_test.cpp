#include "tests/engine/exact_logprobs.h"
#include "tests/cuda/gpu.h"

namespace quench {
namespace {

TEST(CudaExactLogprobs, SamplingGivesThoseOfTraining) {
  for (const char* more : testing::kExactModels)
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const std::int64_t sequences : {1, 3, 24}) {
        SCOPED_TRACE(fmt::format("{} {} {} sequences", more, to_string(dtype), sequences));
        const testing::EngineModel model(testing::kGpu, more, dtype);
        testing::expect_exact_logprobs(model.lm, sequences);
      }
}

// In f32 cuBLASLt adds the update in an order that depends on the number of rows (docs/reference/numerics.md).
TEST(CudaExactLogprobs, WithLoraInBf16Too) {
  testing::expect_exact_adapted_logprobs(testing::kGpu, DType::bf16);
}

}  // namespace
}  // namespace quench
