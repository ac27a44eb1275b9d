// Models of adapter runs by several processes, which hold the weights in parts: what one process makes of the
// checkpoint.

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "tests/distributed/sharded_training.h"

namespace quench {
namespace {

namespace fs = std::filesystem;
using testing::ChildResult;
using ::testing::HasSubstr;
using testing::read_file;
using testing::ShardedTraining;

using Options = std::vector<std::string>;

class AdapterExport : public ShardedTraining {
 protected:
  void SetUp() override {
    ShardedTraining::SetUp();
    // Rows that three processes cannot share out evenly, of whole blocks of nf4.
    write_config(R"("model_type": "qwen3", "vocab_size": 509, "hidden_size": 64, "intermediate_size": 192,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)");
  }
  [[nodiscard]] std::string at(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] static Options joined(Options first, const Options& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  // Adapters for three steps, exported to `name`-export.
  [[nodiscard]] Options with_export(const std::string& name, const Options& more) const {
    return joined({"--lora.rank=3", "--training.steps=3", "--export.folder=" + at(name + "-export")}, more);
  }
  // `quench train` of one rank.
  [[nodiscard]] Options command(const std::string& name, const Options& more) const {
    return joined({testing::program_path(), "train", at("run.json"), "--device=cpu", "--run.folder=" + at(name)}, more);
  }
  // Folders of the export, temporary ones too.
  [[nodiscard]] Options entries_of_export(const std::string& name) const {
    Options names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      if (std::string file = entry.path().filename().string(); file.starts_with(name + "-export"))
        names.push_back(std::move(file));
    return names;
  }
  // Until it is written, after the last checkpoint. The start of a run tries whether the folder can be made.
  void wait_for_export(const std::string& name) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!fs::exists(folder_ / name / "checkpoints/step-3") || entries_of_export(name).empty()) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  void run_verb(const Options& arguments) const {
    testing::Child program(joined({testing::program_path()}, arguments), {});
    const ChildResult result = program.wait();
    ASSERT_EQ(result.status, 0) << arguments.front() << ": " << result.output;
  }
  void expect_same_folder(const std::string& got, const std::string& wanted) const {
    expect_same_export(folder_ / got, folder_ / wanted);
    EXPECT_EQ(read_file(folder_ / got / "config.json"), read_file(folder_ / wanted / "config.json"));
  }
  // The run's own export is that of the verb with these options.
  void expect_export_of_checkpoint(int ranks, const std::string& name, const Options& training,
                                   const Options& verb = {}) {
    SCOPED_TRACE(fmt::format("{} in {} processes", fmt::join(training, " "), ranks));
    train(ranks, name, with_export(name, training));
    run_verb(joined({"export", "--checkpoint", at(name), "--output", at(name + "-again")}, verb));
    expect_same_folder(name + "-export", name + "-again");
  }
};

TEST_F(AdapterExport, HoldsTheMergedWeights) {
  const std::string some = "--lora.targets=[\"q_proj\",\"v_proj\",\"down_proj\"]";
  const std::vector<std::pair<int, Options>> runs = {
      {2, {some}},
      {3, {"--lora.dora=true", some}},
      {3, {"--lora.rslora=true", "--training.dtype=bf16"}},
      {3, {"--lora.base=nf4", "--lora.dora=true", some}},
      {2, {"--lora.base=float8", "--training.dtype=bf16"}},
      {2, {"--parallel.shard=1", "--parallel.replicate=2", "--lora.base=float8"}},
      {2, {"--parallel.shard=1", "--parallel.replicate=2"}},
      {3, {"--lora.modules_to_save=embed_tokens,lm_head,norm", "--lora.base=nf4", some}},
      {3, {"--lora.trainable_token_indices=100,508,3,101", "--model.tie_word_embeddings=true", some}},
      {2, {"--lora.modules_to_save=embed_tokens,model.norm", "--model.tie_word_embeddings=true"}},
  };
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& [ranks, options] = runs[i];
    const std::string name = fmt::format("run{}", i);
    expect_export_of_checkpoint(ranks, name, joined({"--export.format=hf"}, options));
    run_verb({"merge-lora", "--model", at(name), "--output", at(name + "-merged")});
    expect_same_folder(name + "-export", name + "-merged");
  }
  expect_export_of_checkpoint(3, "averages",
                              {"--export.format=hf", "--export.weights=ema", "--training.ema_decay=0.5", some},
                              {"--weights", "ema"});
  // Not the weights that the adapters lie over.
  train(2, "untrained",
        with_export("untrained", joined(runs[0].second, {"--export.format=hf", "--optimizer.lr=1e-30"})));
  EXPECT_NE(read_file(folder_ / "untrained-export" / "model.safetensors"),
            read_file(folder_ / "run0-export" / "model.safetensors"));
}

TEST_F(AdapterExport, MayBeQuantized) {
  expect_export_of_checkpoint(3, "codes",
                              {"--export.format=compressed-tensors", "--export.scheme=int4_weight_only_g32"},
                              {"--format", "compressed-tensors", "--scheme", "int4_weight_only_g32"});
  expect_export_of_checkpoint(2, "torchao",
                              {"--lora.base=float8", "--export.format=torchao", "--export.scheme=int8dyn_int8"},
                              {"--format", "torchao", "--scheme", "int8dyn_int8"});
  const Options simulated = {"--recipe.name=qat_int4_weight_only", "--export.format=compressed-tensors",
                             "--export.scheme=int4_weight_only_g32"};
  expect_export_of_checkpoint(3, "qat", simulated,
                              {"--format", "compressed-tensors", "--scheme", "int4_weight_only_g32"});
}

// Rank 0 calibrates with whole layers; pruning looks across the rows of all processes.
TEST_F(AdapterExport, MayBeCalibratedAndPruned) {
  const Options data_of_run{"--export.calibration=" + at("text.txt"), "--export.calibration_samples=12",
                            "--export.calibration_seq_len=16", "--export.format=compressed-tensors"};
  const Options data_of_verb{
      "--calibration", at("text.txt"),      "--calibration-samples", "12", "--calibration-seq-len", "16",
      "--format",      "compressed-tensors"};
  const auto expect_same = [&](int ranks, const std::string& name, const Options& training, const Options& verb) {
    expect_export_of_checkpoint(ranks, name, joined(data_of_run, training), joined(data_of_verb, verb));
  };
  expect_same(2, "gptq", {"--lora.base=float8", "--export.scheme=int4_weight_only_g32", "--export.method=gptq"},
              {"--scheme", "int4_weight_only_g32", "--method", "gptq"});
  expect_same(3, "smooth",
              {"--lora.targets=[\"q_proj\",\"down_proj\"]", "--export.scheme=int8dyn_int8",
               "--export.method=smoothquant", "--export.sparsity=2:4", "--export.embeddings=int8_weight_only_g32"},
              {"--scheme", "int8dyn_int8", "--method", "smoothquant", "--sparsity", "2:4", "--embeddings",
               "int8_weight_only_g32"});
  expect_export_of_checkpoint(3, "sparse", {"--export.format=sparse24", "--export.sparsity=2:4_transposable"},
                              {"--format", "sparse24", "--sparsity", "2:4_transposable"});
  write_config(R"("model_type": "qwen3_moe", "vocab_size": 509, "hidden_size": 32, "intermediate_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": true, "mlp_only_layers": [0])");
  expect_same(4, "experts",
              {"--parallel.expert=2", "--parallel.shard=2", "--parallel.replicate=2",
               "--export.scheme=int4_weight_only_g32", "--export.method=awq"},
              {"--scheme", "int4_weight_only_g32", "--method", "awq"});
}

// A base that stays in the codes of its folder.
TEST_F(AdapterExport, OfStoredCodesIsDense) {
  train(1, "base",
        {"--training.steps=1", "--lr_schedule.warmup_steps=0", "--export.format=compressed-tensors",
         "--export.scheme=int4_weight_only_g32_asym", "--export.folder=" + at("base-model")});
  std::string config = read_file(folder_ / "run.json");
  config.replace(config.find("{\"model_type\""), config.find("\"data\"") - config.find("{\"model_type\""),
                 "{\"path\": \"" + at("base-model") + "\"}, ");
  testing::write_file(folder_ / "run.json", config);
  expect_export_of_checkpoint(3, "run", {"--lora.base=stored", "--lora.dora=true"});
  EXPECT_EQ(Json::parse_file(folder_ / "run-export" / "config.json").find("quantization_config"), nullptr);
}

TEST_F(AdapterExport, HoldsTheExpertsOfAllProcesses) {
  write_config(R"("model_type": "qwen3_moe", "vocab_size": 509, "hidden_size": 32, "intermediate_size": 37,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 11, "norm_topk_prob": true, "mlp_only_layers": [0])");
  expect_export_of_checkpoint(4, "shared", {"--parallel.expert=2"});
  expect_export_of_checkpoint(3, "sharded", {});
}

// A disk that is full for the process that writes: one error, which all report, and nothing half-written.
TEST_F(AdapterExport, WithoutSpaceFailsForAll) {
  testing::Ranks ranks(3);
  for (int rank = 0; rank < 3; ++rank)
    ranks.start(rank, command("run", with_export("run", {"--export.format=hf"})),
                rank == 0 ? Options{"LD_PRELOAD=" + testing::fault_shim_path(),
                                    "QUENCH_FAULT=do=ENOSPC;sticky;ops=fallocate,write;path=model.safetensors"}
                          : Options{});
  for (const ChildResult& result : ranks.wait()) {
    EXPECT_EQ(result.status, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr("No space left on device"));
    EXPECT_EQ(result.output.find("error: "), result.output.rfind("error: ")) << result.output;
  }
  EXPECT_EQ(entries_of_export("run"), Options{});
  train(3, "run", with_export("run", {"--export.format=hf"}));  // at its last step: the export alone
  run_verb({"export", "--checkpoint", at("run"), "--output", at("again")});
  expect_same_folder("run-export", "again");
}

// Whichever process dies: nothing appears under the export's name, the others end soon and name it.
TEST_F(AdapterExport, IsWholeOrAbsentWhenAProcessDies) {
  for (const int victim : {0, 1}) {
    const std::string name = fmt::format("dies{}", victim);
    testing::Ranks ranks(2);
    for (int rank = 0; rank < 2; ++rank)
      ranks.start(rank, command(name, with_export(name, {"--export.format=hf"})),
                  rank == 0 ? Options{"LD_PRELOAD=" + testing::fault_shim_path(),
                                      "QUENCH_FAULT=do=delay;ms=1500;ops=create;at=1;path=model.safetensors"}
                            : Options{});
    wait_for_export(name);
    ranks[victim].kill(SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<ChildResult> results = ranks.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_EQ(results[static_cast<std::size_t>(victim)].status, 128 + SIGKILL);
    const ChildResult& other = results[static_cast<std::size_t>(1 - victim)];
    EXPECT_EQ(other.status, 1) << other.output;
    EXPECT_THAT(other.output, HasSubstr(fmt::format("rank {}", victim)));
    EXPECT_FALSE(fs::exists(folder_ / (name + "-export")));
    // The writer takes its temporary folder away where it lives.
    EXPECT_EQ(entries_of_export(name).empty(), victim != 0);
    train(2, name, with_export(name, {"--export.format=hf"}));
    run_verb({"export", "--checkpoint", at(name), "--output", at(name + "-again")});
    expect_same_folder(name + "-export", name + "-again");
  }
}

// While rank 0 writes, the others wait for it, however long that takes; it does not wait long for one that has stopped.
TEST_F(AdapterExport, NamesAProcessThatStops) {
  testing::Ranks ranks(2);
  for (int rank = 0; rank < 2; ++rank)
    ranks.start(rank, command("stops", with_export("stops", {"--export.format=hf"})),
                rank == 0 ? Options{"QUENCH_TIMEOUT=2", "LD_PRELOAD=" + testing::fault_shim_path(),
                                    "QUENCH_FAULT=do=delay;ms=1500;ops=create;at=1;path=model.safetensors"}
                          : Options{"QUENCH_TIMEOUT=2"});
  wait_for_export("stops");
  ranks[1].kill(SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult writer = ranks[0].wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(writer.status, 75) << writer.output;
  EXPECT_THAT(writer.output, HasSubstr(fmt::format("rank 1 (process {} on ", ranks[1].id())));
  EXPECT_EQ(entries_of_export("stops"), Options{});
  ranks[1].kill(SIGKILL);
}

// Memory of merging does not grow with the number of layers.
TEST_F(AdapterExport, HoldsAParameterOrTwoAtATime) {
  constexpr std::int64_t kHidden = 256, kInner = 1024, kLayers = 24;
  write_config(fmt::format(R"("model_type": "llama", "vocab_size": 259, "hidden_size": {}, "intermediate_size": {},
      "num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 4)",
                           kHidden, kInner, kLayers));
  // Peak of the largest process so far.
  const auto peak_bytes = [&](const std::string& name, const Options& more) {
    train(2, name,
          joined(
              {"--lora.rank=2", "--training.steps=1", "--lr_schedule.warmup_steps=0", "--training.global_batch_size=2"},
              more));
    rusage used{};
    EXPECT_EQ(::getrusage(RUSAGE_CHILDREN, &used), 0);
    return std::int64_t{used.ru_maxrss} * 1024;
  };
  const std::int64_t without = peak_bytes("without", {});
  const std::int64_t with = peak_bytes("with", {"--export.format=hf", "--export.folder=" + at("model")});
  const std::int64_t layer = (4 * kHidden * kHidden + 3 * kHidden * kInner) * 4, fused = 2 * kHidden * kInner * 4;
  EXPECT_LT(with - without, 6 * fused) << without << " and " << with << " bytes; " << kLayers * layer / 2
                                       << " of weights are on the other process";
  EXPECT_TRUE(fs::exists(folder_ / "model" / "model.safetensors"));
}

}  // namespace
}  // namespace quench
