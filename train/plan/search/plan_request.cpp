#include "train/plan/search/plan_request.h"

#include <filesystem>

#include "train/config/presets.h"

namespace quench {
namespace {

const PlanObjective kFull{"full", "all weights", "{}"};
const PlanObjective kLora{"lora", "adapters of rank 16 over the model's weights",
                          R"({"lora": {"rank": 16, "alpha": 32}, "optimizer": {"lr": 2e-4}})"};
const PlanObjective kQlora{"qlora", "adapters of rank 16 over weights in 4 bits (NF4)",
                           R"({"lora": {"rank": 16, "alpha": 32, "base": "nf4"}, "optimizer": {"lr": 2e-4}})"};

Json model_section(const std::string& name) {
  std::error_code ignored;
  if (!std::filesystem::exists(name, ignored))
    if (const EmbeddedConfig* preset = find_embedded_model(name)) return Json::Object{{"preset", preset->name}};
  QUENCH_CHECK_AS(ErrorCode::bad_config, std::filesystem::exists(name, ignored),
                  "--model {}: no model folder and no embedded model has this name{}", name, [&] {
                    const std::string nearest = nearest_embedded_config("models", name);
                    return nearest.empty() ? std::string(" (`quench config ls` lists them)")
                                           : fmt::format("; did you mean {}?", nearest);
                  }());
  return Json::Object{{"path", name}};
}

}  // namespace

const ChoiceTable<PlanObjective>& plan_objectives() {
  static const ChoiceTable<PlanObjective> table("objective", {kFull, kLora, kQlora});
  return table;
}

Json planned_document(const PlanRequest& request) {
  Json document = Json::parse(plan_objectives().require(request.objective, "--objective").sections);
  document.set("model", model_section(request.model));
  document.set("data", Json::Object{{"seq_len", request.seq_len}});
  document.set("training", Json::Object{{"global_batch_size", request.tokens_per_step / request.seq_len}});
  return document;
}

void check_request(const PlanRequest& request) {
  const std::int64_t sequence_row = request.seq_len * request.gpus;  // a sequence for each GPU
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, request.tokens_per_step >= sequence_row,
      "--tokens-per-step {}: {} GPUs with a sequence of {} tokens each take {} at least; fewer GPUs, shorter "
      "sequences, or more tokens",
      request.tokens_per_step, request.gpus, request.seq_len, sequence_row);
  const std::int64_t below = request.tokens_per_step / sequence_row * sequence_row;
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, below == request.tokens_per_step,
      "--tokens-per-step {}: no whole number of sequences of {} tokens for each of {} GPUs; nearest are {} and "
      "{}",
      request.tokens_per_step, request.seq_len, request.gpus, below, below + sequence_row);
}

}  // namespace quench
