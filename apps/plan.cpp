// quench plan: the fastest run config that fits some GPUs.

#include <cstdio>

#include "apps/common.h"
#include "apps/verbs.h"
#include "core/memory/memory_limit.h"
#include "core/system/file.h"
#include "core/system/output_file.h"
#include "train/config/override.h"
#include "train/plan/search/plan_report.h"

namespace quench {
namespace {

struct PlanOptions {
  PlanRequest request{};
  std::string gpu;
  std::int64_t node_size = Cluster{}.node_size;
  double network = Cluster{}.network_bytes / 1e9;
  std::string host_memory;
  PlanData data{};
  std::string out;
  bool overwrite = false;
  bool json = false;
};

void run_plan(PlanOptions o, const std::vector<std::string>& words) {
  const SplitArguments arguments = split_arguments(words);
  QUENCH_CHECK_AS(ErrorCode::bad_config, arguments.words.empty(),
                  "plan takes options and --section.key=value, not \"{}\"", arguments.words.front());
  PlanRequest& request = o.request;
  request.overrides = arguments.overrides;
  request.cluster.node_size = o.node_size;
  request.cluster.network_bytes = o.network * 1e9;
  request.cluster.gpu = &require_planned_gpu(o.gpu);
  request.cluster.rates = planned_rates(*request.cluster.gpu);
  if (!o.host_memory.empty()) {
    const auto bytes = parse_memory_size(o.host_memory);
    QUENCH_CHECK_AS(ErrorCode::bad_config, bytes.has_value(), "--host-memory {}: expected a size such as 512GB or 1TiB",
                    o.host_memory);
    request.host_bytes = *bytes;
  }
  if (!o.out.empty()) require_output_file(o.out, {.option = "--out", .overwrite = o.overwrite});
  const Plan plan = search_plan(request);
  if (!o.out.empty()) write_file_atomically(o.out, plan_config(plan, request, o.data));
  if (o.json) return print_json(to_json(plan, request));
  std::fputs(to_string(plan, request).c_str(), stdout);
  if (!o.out.empty()) std::printf("wrote %s\n", o.out.c_str());
}

}  // namespace

void add_plan_verb(const Command& app) {
  auto o = std::make_shared<PlanOptions>();
  const Command verb =
      app.add_command("plan", "Choose recipe, processes, memory measures and micro-batch of a run for some GPUs");
  verb.footer(
      "Searches for the run config of the least predicted time a token that fits: recipe, sharding, replicas and "
      "experts,\n"
      "recomputation, offload, transfers and micro-batch. Nothing is downloaded and no GPU is needed. "
      "--section.key=value\n"
      "fixes a key. Predictions and their errors: docs/guide/plan.md.\n"
      "Example: quench plan --model llama-3.1-8b --gpus 8 --gpu H100 --tokens-per-step 524288 --seq-len 8192 --out "
      "run.json");
  verb.add_option("--model", o->request.model, "Model folder, or name of an embedded model (quench config ls)")
      .takes_hub_name()
      .required();
  verb.add_option("--gpus", o->request.gpus, "GPUs of the run, one process each").positive().show_default();
  verb.add_option("--gpu", o->gpu, "GPU by name: RTX 3090, 4090 or 5090, A100 (40GB or 80GB), L40S, H100, H200, B200")
      .required();
  verb.add_option("--tokens-per-step", o->request.tokens_per_step, "Tokens of an optimizer step, all GPUs together")
      .positive()
      .required();
  verb.add_option("--seq-len", o->request.seq_len, "Tokens of a sequence").positive().show_default();
  verb.add_option("--objective", o->request.objective, "What is trained: full, lora or qlora").show_default();
  verb.add_option("--node-size", o->node_size, "GPUs of a machine").positive().show_default();
  verb.add_option("--network", o->network, "GB/s that each GPU can send to other machines").positive().show_default();
  verb.add_option("--host-memory", o->host_memory, "Memory of a machine, 1TB; default: not limited");
  verb.add_option("--data", o->data.train, "data.train of the written config");
  verb.add_option("--steps", o->data.steps, "training.steps of the written config; default: one epoch").positive();
  verb.add_option("--out", o->out, "Run config to write, for `quench train`");
  verb.add_flag("--overwrite", o->overwrite, "Replace --out if it exists");
  verb.add_flag("--json", o->json, "Print the plan as JSON");
  verb.allow_other_words();
  verb.on_run([o, verb] { run_plan(*o, verb.other_words()); });
}

}  // namespace quench
