// quench estimate: memory, FLOPs and disk space of a run.

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/common.h"
#include "apps/options/config_arguments.h"
#include "apps/verbs.h"
#include "train/check/load.h"
#include "train/config/presets.h"
#include "train/plan/estimate.h"
#include "train/plan/limits/largest_model.h"
#include "train/plan/limits/longest_sequence.h"
#include "train/session/parallel_setup.h"

namespace quench {

namespace {

constexpr CheckOptions kBeforeDownload{.data = false, .files = false};

// GPU runs can be planned on machines without a GPU.
Device planned_device(const ConfigArguments& arguments) {
  constexpr Device kGpu{DeviceType::cuda, 0};
  const std::string& text = arguments.device;
  if (arguments.gpu) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, text == "auto" || text == "cuda",
                    "--gpu {} plans a run on that GPU; --device {} contradicts it", *arguments.gpu, text);
    return kGpu;
  }
  return text == "cuda" && !is_present(kGpu) ? kGpu : parse_device(text);
}

bool sets(const std::vector<std::string>& overrides, const std::string& key) {
  return std::ranges::any_of(overrides, [flag = "--" + key](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  });
}

// An embedded model's name in place of a config, in any case; nullptr for a file and a ready run.
const EmbeddedConfig* named_model(const std::string& config) {
  std::error_code ignored;
  if (std::filesystem::exists(config, ignored) || find_embedded_config("runs", config) != nullptr) return nullptr;
  return find_embedded_model(config);
}

// --model.preset takes the place of a folder that is not downloaded yet. A model's name is a run of it with the default
// config.
RunConfig planned_config(const ConfigArguments& arguments, const EmbeddedConfig* model) {
  std::vector<std::string> overrides = arguments.overrides;
  if (model == nullptr) {
    if (sets(overrides, "model.preset") && !sets(overrides, "model.path"))
      overrides.insert(overrides.begin(), "--unset=model.path,model.init");
    return load_run_config(arguments.config, overrides, kBeforeDownload);
  }
  const Json architecture = Json::parse(model->text, {.source = model->name});
  Json document = Json::parse(R"({"training": {"steps": 1}})");
  document.set("model", Json::Object{{"preset", model->name}});
  document.set("data", Json::Object{{"seq_len", std::min(architecture.at("max_position_embeddings").as_int(),
                                                         RunConfig{}.data.seq_len)}});
  return parse_run_config(document.dump(), std::string(model->name), overrides, kBeforeDownload);
}

// The run with embedded model `name` in place of its own, whose inline fields are dropped.
RunConfig config_of_model(const ConfigArguments& arguments, std::string_view name) {
  ConfigArguments own = arguments;
  if (named_model(arguments.config) != nullptr)
    own.config = std::string(name);
  else
    own.overrides.insert(own.overrides.begin(), {"--unset=model", fmt::format("--model.preset={}", name)});
  RunConfig config = planned_config(own, named_model(own.config));
  set_ranks(config, arguments.world_size.value_or(1));
  return config;
}

template <class Limit>
void print_limit(const Limit& limit, bool json) {
  if (json)
    print_json(to_json(limit));
  else
    std::fputs(to_string(limit).c_str(), stdout);
}

std::string model_line(const EmbeddedConfig& model, const RunConfig& config) {
  const std::vector<std::string> runs = ready_runs(model.name);
  return fmt::format("{} with the default config: {}, data.seq_len {}, training.micro_batch_size {}{}\n", model.name,
                     config.lora ? "lora" : "all weights trained", config.data.seq_len,
                     config.training.micro_batch_size,
                     runs.empty() ? "" : fmt::format("\nready runs       {}", fmt::join(runs, ", ")));
}

}  // namespace

void add_estimate_verb(const Command& app) {
  const Command verb = app.add_command("estimate", "Predict memory, FLOPs, disk space and step time of a run");
  verb.footer(
      "Usage: quench estimate CONFIG [--gpu NAME] [--device D] [--memory-limit SIZE] [--world-size N] [--node-size N]\n"
      "                              [--network GB] [--max-seq-len | --max-model] [--json] [--section.key=value ...]\n"
      "Example: quench estimate qlora_llama-3.1-8b_16gb --model.preset=llama-3.1-8b --gpu \"RTX 4090\"\n"
      "CONFIG may also be the name of a model: quench estimate llama-3.1-8b --gpu H100. Nothing has to be downloaded:\n"
      "--model.preset takes the place of model.path.\n"
      "--gpu plans a run on an RTX 3090, 4090 or 5090, A100 (40GB or 80GB), L40S, H100, H200 or B200.\n"
      "--max-seq-len finds the longest data.seq_len that fits, and what grows with it; --max-model the largest "
      "embedded\n"
      "model that fits in place of the config's own.\n"
      "--memory-limit 24GB compares with a GPU of that size, 1 GiB of it for the CUDA context and libraries.\n"
      "--device cuda plans a GPU run on a machine without a GPU too; --world-size plans rank 0 of N processes,\n"
      "on machines of --node-size GPUs (8), each of which can send --network GB/s (50) to other machines. The step "
      "time is\n"
      "that of a GPU whose rates are known (docs/guide/scaling.md).");
  take_raw_arguments(verb, "estimate", [](ConfigArguments arguments) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !arguments.quiet, "--quiet: an estimate prints only its result");
    Cluster cluster;
    if (arguments.node_size) cluster.node_size = *arguments.node_size;
    if (arguments.network) cluster.network_bytes = *arguments.network * 1e9;
    if (arguments.gpu) cluster.gpu = &require_planned_gpu(*arguments.gpu);
    const EmbeddedConfig* model = named_model(arguments.config);
    QUENCH_CHECK_AS(ErrorCode::bad_config, !arguments.max_seq_len || !arguments.max_model,
                    "--max-seq-len and --max-model are two searches: give one of them");
    const Device device = planned_device(arguments);
    if (arguments.max_model)
      return print_limit(
          largest_model([&](std::string_view name) { return config_of_model(arguments, name); }, device, cluster),
          arguments.json);
    RunConfig config = planned_config(arguments, model);
    set_ranks(config, arguments.world_size.value_or(1));
    if (arguments.max_seq_len) return print_limit(longest_sequence(config, device, cluster), arguments.json);
    const RunEstimate estimate = fit_run(config, device, cluster);
    if (arguments.json) return print_json(to_json(estimate));
    if (model != nullptr) std::fputs(model_line(*model, config).c_str(), stdout);
    std::fputs(to_string(estimate).c_str(), stdout);
  });
}

}  // namespace quench
