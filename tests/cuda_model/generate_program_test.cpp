// The program's verbs on a GPU, as a user runs them.

#include <gmock/gmock.h>

#include "tests/apps/run_project.h"

namespace quench::testing {
namespace {

using CudaGenerateVerb = RunProject;

// The warm-up of generation runs while weights are read: of dense folders, but not of those whose weights reading
// allocates.
TEST_F(CudaGenerateVerb, ContinuesFromDenseQuantizedAndAdaptedModels) {
  expect_ok({"train", "run.json", "--device=cpu", "--export.format=hf", "--export.folder=dense"});
  for (const char* scheme : {"int8_weight_only", "int4_weight_only_g32", "float8_weight_only"})
    expect_ok({"quantize", "--model", "dense", "--scheme", scheme, "--output", scheme});
  write_config(R"({"path": "dense"})");
  for (const char* base : {"dense", "nf4"})
    expect_ok({"train", "run.json", "--device=cpu", "--lora.rank=4", std::string("--lora.base=") + base,
               "--training.steps=2", std::string("--run.folder=lora-") + base});
  for (const char* model :
       {"dense", "int8_weight_only", "int4_weight_only_g32", "float8_weight_only", "run", "lora-dense", "lora-nf4"}) {
    const Outcome outcome = run({"generate", "--model", model, "--device", "cuda", "--prompt", "the old king sees",
                                 "--max-new-tokens", "8", "--temperature", "0", "--json"});
    EXPECT_EQ(outcome.status, 0) << model << ": " << outcome.errors;
    EXPECT_THAT(outcome.output, ::testing::HasSubstr("\"tokens\"")) << model;
  }
}

}  // namespace
}  // namespace quench::testing
