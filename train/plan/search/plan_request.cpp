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
  document.set("training", Json::Object{{"global_batch_size", request.sequences()}});
  return document;
}

void check_request(const PlanRequest& request) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, request.tokens_per_step >= request.seq_len,
                  "--tokens-per-step {}: a sequence has {} tokens; shorter sequences, or more tokens",
                  request.tokens_per_step, request.seq_len);
  const std::int64_t below = request.sequences() * request.seq_len;
  QUENCH_CHECK_AS(ErrorCode::bad_config, below == request.tokens_per_step,
                  "--tokens-per-step {}: no whole number of sequences of {} tokens; nearest are {} and {}",
                  request.tokens_per_step, request.seq_len, below, below + request.seq_len);
}

}  // namespace quench
