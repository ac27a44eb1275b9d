// Estimates of deep models from shallow ones, next to those of the whole model.

#include "train/plan/search/depth_estimate.h"

#include <gmock/gmock.h>

#include "tests/testing.h"
#include "train/check/load.h"
#include "train/session/model_setup.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

constexpr Device kGpu{DeviceType::cuda, 0};

RunConfig config_of(const std::string& model, std::int64_t gpus, std::vector<std::string> more) {
  more.insert(more.end(), {"--data.seq_len=2048", "--training.steps=1", "--training.global_batch_size=16"});
  RunConfig config = parse_run_config(R"({"model": {"preset": ")" + model + R"("}})", "run.json", more,
                                      {.data = false, .files = false});
  set_ranks(config, gpus);
  return config;
}

Cluster cluster_of(const std::string& gpu) {
  Cluster cluster;
  cluster.gpu = &require_planned_gpu(gpu);
  cluster.rates = planned_rates(*cluster.gpu);
  return cluster;
}

TEST(DepthEstimate, IsThatOfTheWholeModel) {
  const Cluster cluster = cluster_of("H100");
  for (const auto& [model, gpus, more] : std::vector<std::tuple<std::string, std::int64_t, std::vector<std::string>>>{
           {"llama-3.1-70b", 8, {}},
           {"llama-3.1-70b", 8, {"--parallel.tensor=8", "--training.activation_checkpoint=full"}},
           {"llama-3.1-70b", 16, {"--training.activation_checkpoint=full", "--training.offload_layers=80"}},
           {"llama-3.1-405b", 16, {"--recipe.name=float8_rowwise", "--training.activation_checkpoint=selective"}},
           {"gemma-3-27b", 8, {"--training.activation_checkpoint=selective", "--training.recompute_mlp_layers=62"}},
           {"qwen3-235b-a22b", 16, {"--parallel.expert=8", "--parallel.reshard_after_forward=false"}},
           {"deepseek-v3", 16, {"--optimizer.offload_ratio=1", "--optimizer.offload_streamed=true"}}}) {
    SCOPED_TRACE(model + (more.empty() ? "" : " " + more.front()));
    const RunConfig config = config_of(model, gpus, more);
    const nn::ModelConfig whole = run_model_config(config);
    const std::optional<ShallowModels> shallow = shallow_models(whole);
    ASSERT_TRUE(shallow);
    EXPECT_LT(shallow->more.num_hidden_layers * 2, whole.num_hidden_layers);
    ASSERT_TRUE(scales_with_depth(config, more));
    const RunEstimate all = estimate_run(ResolvedConfig(config), kGpu, cluster, {.brief = true}),
                      deep = estimate_by_depth(config, whole.num_hidden_layers, *shallow, kGpu, cluster);
    EXPECT_NEAR(static_cast<double>(deep.total_bytes) / static_cast<double>(all.device.peak), 1, 1e-4);
    EXPECT_LT(static_cast<double>(all.total_bytes) / static_cast<double>(deep.total_bytes),
              most_gaps(config, whole.num_hidden_layers).value());
    EXPECT_NEAR(static_cast<double>(deep.host_bytes) / static_cast<double>(all.host_bytes), 1, 0.01);
    EXPECT_NEAR(deep.time->total() / all.time->total(), 1, 0.005);
  }
}

// Copies to host memory that have not ended keep a number of tensors that does not grow with the layers.
TEST(DepthEstimate, IsALowerBoundWhereSomeLayersAreOffloaded) {
  const Cluster cluster = cluster_of("H100");
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--training.activation_checkpoint=selective", "--training.offload_layers=40"},
           {"--training.activation_checkpoint=full", "--optimizer.offload_ratio=1"}}) {
    SCOPED_TRACE(more.back());
    const RunConfig config = config_of("llama-3.1-70b", 8, more);
    EXPECT_FALSE(most_gaps(config, 80));
    const RunEstimate all = estimate_run(ResolvedConfig(config), kGpu, cluster, {.brief = true}),
                      deep = estimate_by_depth(config, 80, shallow_models(run_model_config(config)).value(), kGpu,
                                               cluster);
    EXPECT_LE(deep.total_bytes, all.device.peak);
    EXPECT_GE(static_cast<double>(deep.total_bytes), 0.9 * static_cast<double>(all.device.peak));
    EXPECT_NEAR(deep.time->total() / all.time->total(), 1, 0.005);
  }
}

TEST(DepthEstimate, ShallowModelsHaveTheLayersOfTheDeepOne) {
  const nn::ModelConfig model = run_model_config(config_of("deepseek-v3", 1, {}));  // three dense layers, then experts
  const std::optional<ShallowModels> shallow = shallow_models(model);
  ASSERT_TRUE(shallow);
  for (const nn::ModelConfig& one : {shallow->fewer, shallow->more}) {
    EXPECT_EQ(std::ssize(one.blocks), one.num_hidden_layers);
    EXPECT_EQ(one.num_hidden_layers - one.sparse_layers(), 3);
  }
  EXPECT_EQ(
      static_cast<double>(shallow->fewer.num_hidden_layers) +
          shallow->steps * static_cast<double>(shallow->more.num_hidden_layers - shallow->fewer.num_hidden_layers),
      static_cast<double>(model.num_hidden_layers));
  EXPECT_FALSE(shallow_models(run_model_config(config_of("llama-3.2-1b", 1, {}))))
      << "16 layers are simulated as they are";
}

TEST(DepthEstimate, SingleLayersAndStagesAreSimulated) {
  const auto scales = [](const std::vector<std::string>& more) {
    return scales_with_depth(config_of("llama-3.1-70b", 8, more), more);
  };
  EXPECT_TRUE(scales({"--optimizer.name=adamw_8bit"}));
  EXPECT_FALSE(scales({"--recipe.name=float8_rowwise", "--recipe.filter.skip_last_layers=2"}));
  EXPECT_FALSE(scales({"--parallel.pipeline=2"}));
}

}  // namespace
}  // namespace quench
