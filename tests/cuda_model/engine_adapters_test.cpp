// Many adapters in one batch of the engine on a GPU: decode passes are device graphs that read the choice of adapters.

#include "tests/cuda/gpu.h"
#include "tests/engine/adapters_testing.h"

namespace quench {
namespace {

using testing::adapted_answers;
using testing::adapted_requests;
using testing::attach_bank;
using testing::EngineModel;
using testing::expect_answer;
using testing::kBankAdapters;
using testing::kGpu;
using testing::run_all;

TEST(CudaEngineAdapters, AnswersAreThoseOfTheCpu) {
  EngineModel cpu, gpu(kGpu);
  const std::vector<EngineRequest> requests = adapted_requests(40);
  const std::vector<testing::Answer> expected = adapted_answers(cpu.lm, requests);
  attach_bank(gpu.lm);
  for (const EngineOptions& options :
       {EngineOptions{.max_sequences = 1, .cache_tokens = 1000, .adapters = kBankAdapters},
        EngineOptions{.max_sequences = 7, .cache_tokens = 700, .adapters = kBankAdapters},
        EngineOptions{.max_sequences = 40, .cache_tokens = 9000, .prefill_tokens = 50, .adapters = kBankAdapters}}) {
    Engine engine(gpu.lm, options);
    for (int round = 0; round < 2; ++round) {
      const std::vector<EngineResult> results = run_all(engine, requests);
      for (std::size_t i = 0; i < results.size(); ++i) {
        SCOPED_TRACE(fmt::format("request {} of {} sequences", i, options.max_sequences));
        expect_answer(results[i], expected[i], 1e-3);
      }
    }
  }
}

}  // namespace
}  // namespace quench
