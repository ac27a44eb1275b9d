// Base weights under adapters: filled and quantized one by one.

#include "train/session/adapter_setup.h"

#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "tests/train/run/trainer_fixture.h"
#include "train/step/meta_batch.h"

namespace quench {
namespace {

struct FilledBase {
  std::string hash;
  std::int64_t peak = 0;  // bytes allocated while building and filling
};

FilledBase fill(const RunConfig& config) {
  Allocator& allocator = Allocator::of(Device{});
  allocator.reset_peak();
  const std::int64_t before = allocator.stats().current;
  ModelSetup setup = build_model(ResolvedConfig(config), Device{});
  FilledBase filled;
  filled.hash = fill_adapted(setup, config);
  filled.peak = allocator.stats().peak - before;
  for (const nn::Parameter* parameter : setup.model->parameters())
    EXPECT_EQ(parameter->weight().acquire().value().shape(), parameter->global_shape) << parameter->name;
  return filled;
}

class BaseUnderAdapters : public ::testing::Test {
 protected:
  [[nodiscard]] RunConfig config(const std::string& base, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"--lora.base=" + base, "--model.num_hidden_layers=16", "--lora.rank=1"});
    return tiny_.config("run", more);
  }
  testing::TinyRun tiny_;
};

TEST_F(BaseUnderAdapters, IsNeverWholeInTheModelsDtype) {
  const FilledBase dense = fill(config("dense"));
  for (const char* base : {"nf4", "float8"}) {
    const FilledBase quantized = fill(config(base));
    EXPECT_LT(quantized.peak, dense.peak / 2) << base;
    EXPECT_EQ(quantized.hash, dense.hash) << base << ": the base is the same model, however it is stored";
  }
}

TEST_F(BaseUnderAdapters, IsPlannedAsItIsFilled) {
  const RunConfig run = config("nf4");
  Allocator& plan = Allocator::of(kMeta);
  plan.reset_peak();
  const std::int64_t before = plan.stats().current;
  const ModelSetup setup = build_model(ResolvedConfig(run), kMeta, Device{});
  const auto planned = static_cast<double>(plan.stats().peak - before);
  const auto filled = static_cast<double>(fill(run).peak);
  EXPECT_LT(planned, 1.05 * filled);
  EXPECT_GT(planned, 0.5 * filled);  // random values are made in host memory
}

}  // namespace
}  // namespace quench
