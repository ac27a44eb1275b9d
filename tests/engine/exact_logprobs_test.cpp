#include "tests/engine/exact_logprobs.h"

namespace quench {
namespace {

TEST(ExactLogprobs, SamplingGivesThoseOfTraining) {
  for (const char* more : testing::kExactModels)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t sequences : {1, 5}) {
        SCOPED_TRACE(fmt::format("{} {} {} sequences", more, to_string(dtype), sequences));
        const testing::EngineModel model({}, more, dtype);
        testing::expect_exact_logprobs(model.lm, sequences, 8);
      }
}

TEST(ExactLogprobs, WithLoraToo) {
  for (const DType dtype : {DType::bf16, DType::f32}) testing::expect_exact_adapted_logprobs(Device{}, dtype);
}

}  // namespace
}  // namespace quench
