// Holders of memory in estimates, against runs on the CPU.

#include "train/plan/memory_holders.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "tests/train/run/trainer_fixture.h"
#include "train/plan/estimate.h"

namespace quench {
namespace {

using testing::TinyRun;
using Options = std::vector<std::string>;
using Bytes = std::map<std::string_view, std::int64_t>;

Bytes by_name(const MemoryStats& stats) {
  Bytes bytes;
  for (const MemoryHolder& holder : memory_holders(stats)) bytes[holder.name] += holder.bytes;
  return bytes;
}

// Estimate of a CPU run, and the run's own statistics, without tensors of other tests.
std::pair<RunEstimate, MemoryStats> planned_and_measured(const TinyRun& tiny, const RunConfig& config) {
  const RunEstimate estimate = estimate_run(ResolvedConfig(config), Device{});
  Allocator& host = Allocator::of(Device{});
  host.trim();
  host.reset_peak();
  const MemoryStats before = host.stats();
  tiny.run(config);
  MemoryStats stats = host.stats();
  stats.peak -= before.current;
  for (std::size_t category = 0; category < kMemoryCategoryCount; ++category)
    for (std::size_t part = 0; part < kMemoryPartCount; ++part)
      stats.peak_by_part[category][part] -= before.current_by_part[category][part];
  return {estimate, stats};
}

// Holders of the plan have a run's bytes to 5% of its peak: kernels of the CPU have workspaces that no plan counts.
void expect_same_holders(const Options& more) {
  SCOPED_TRACE(::testing::PrintToString(more));
  const TinyRun tiny;
  Options options{"--training.steps=2",          "--checkpoint.enable=false",          "--model.hidden_size=128",
                  "--model.num_hidden_layers=4", "--model.intermediate_size=384",      "--model.vocab_size=2048",
                  "--data.seq_len=128",          "--training.micro_batch_size=8",      "--training.global_batch_size=8",
                  "--training.dtype=bf16",       "--model.max_position_embeddings=128"};
  options.insert(options.end(), more.begin(), more.end());
  const auto [estimate, stats] = planned_and_measured(tiny, tiny.config("run", options));
  const Bytes planned = by_name(estimate.device), measured = by_name(stats);
  const double tolerance = 0.05 * static_cast<double>(stats.peak);
  EXPECT_NEAR(static_cast<double>(estimate.device.peak), static_cast<double>(stats.peak), tolerance);
  for (const char* name : {"weights", "gradients", "optimizer state", "activations: attention",
                           "activations: feed-forward", "activations: hidden states", "logits", "workspaces"}) {
    const auto bytes = [&](const Bytes& of) { return of.contains(name) ? static_cast<double>(of.at(name)) : 0.0; };
    EXPECT_NEAR(bytes(planned), bytes(measured), tolerance) << name;
  }
  EXPECT_GT(planned.at("activations: feed-forward"), planned.at("activations: hidden states"));
}

TEST(MemoryHolders, OfAnEstimateAreThoseOfTheRun) {
  expect_same_holders({});
  expect_same_holders({"--training.activation_checkpoint=selective"});
}

// Without the head's gradient in bf16, which the CPU stores, the plan would lack a chunk of logits.
TEST(MemoryHolders, OfAFloat8HeadAreThoseOfTheRun) {
  expect_same_holders(
      {"--recipe.name=float8_tensorwise", "--recipe.filter.exclude=[]", "--training.logits_dtype=bf16"});
}

TEST(MemoryHolders, AddUpToThePeakInOrder) {
  const TinyRun tiny;
  const RunEstimate estimate = estimate_run(ResolvedConfig(tiny.config("run")), Device{});
  const std::vector<MemoryHolder> holders = memory_holders(estimate.device);
  EXPECT_EQ(std::accumulate(holders.begin(), holders.end(), std::int64_t{0},
                            [](std::int64_t sum, const MemoryHolder& holder) { return sum + holder.bytes; }),
            estimate.device.peak);
  EXPECT_TRUE(std::ranges::is_sorted(holders, std::ranges::greater{}, &MemoryHolder::bytes));
  const std::string text = to_string(estimate);
  EXPECT_THAT(text, ::testing::HasSubstr("largest holders at the peak, MiB\n  optimizer state "));
  const Json json = to_json(estimate);
  const Json::Array& listed = json.at("memory_holders").as_array();
  ASSERT_EQ(listed.size(), holders.size());
  EXPECT_EQ(listed.front().at("name").as_string(), "optimizer state");
  EXPECT_EQ(listed.front().at("bytes").as_int(), holders.front().bytes);
}

}  // namespace
}  // namespace quench
