// Losses of whole answers against the CPU kernels.

#include "core/ops/loss/answer_loss.h"

#include "tests/core/ops/loss/answer_batch.h"
#include "tests/cuda/fused_testing.h"

namespace quench::testing {
namespace {

TEST(CudaAnswerLoss, MatchesTheCpu) {
  unsigned seed = 1;
  for (const AnswerLossOptions& options : kAnswerLosses)
    for (const auto& [pairs, longest] : {std::pair(1, 1), {3, 40}, {300, 5}, {17, 3000}}) {
      SCOPED_TRACE(fmt::format("{} {} pairs of up to {} tokens", enum_name(options.loss), pairs, longest));
      const AnswerBatch batch = AnswerBatch::random(pairs, longest, ++seed),
                        on_device = batch.to(Device{DeviceType::cuda, 0});
      const float scale = 1.0f / static_cast<float>(pairs);
      const AnswerResults expected = run_answers(batch, options, scale), first = run_answers(on_device, options, scale),
                          second = run_answers(on_device, options, scale);
      EXPECT_TRUE(matches(first.value, expected.value, 1e-6, 1e-7));
      EXPECT_TRUE(matches(first.metrics, expected.metrics, 1e-6, 1e-6));
      EXPECT_TRUE(matches(first.factors, expected.factors, 1e-6, 1e-9));
      for (const auto& [a, b] : {std::pair(first.value, second.value),
                                 {first.metrics, second.metrics},
                                 {first.factors, second.factors},
                                 {first.derivatives, second.derivatives}})
        EXPECT_TRUE(same_bits(on_cpu(a), on_cpu(b))) << "runs differ";
    }
}

}  // namespace
}  // namespace quench::testing
