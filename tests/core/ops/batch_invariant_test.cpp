// Rows of forward ops next to the same rows computed alone or with others, in batch-invariant mode.

#include "tests/core/ops/batch_invariant_cases.h"

namespace quench {
namespace {

TEST(BatchInvariant, RowsOfGemmsDoNotDependOnTheirNumber) {
  testing::expect_invariant_gemms(Device{});
}

TEST(BatchInvariant, RowsOfAttentionDoNotDependOnOtherQueries) {
  testing::expect_invariant_attention(Device{});
}

}  // namespace
}  // namespace quench
