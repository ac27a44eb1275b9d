#include "train/plan/search/plan_report.h"

#include <algorithm>
#include <map>

#include "train/config/override.h"

namespace quench {
namespace {

constexpr double kBytesPerGiB = 1024.0 * 1024 * 1024;

double gibibytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / kBytesPerGiB;
}

std::string title(const PlanRequest& request) {
  return fmt::format("{} on {} x {}: {}, {} tokens a step in sequences of {}", request.model, request.gpus,
                     request.cluster.gpu->title(), request.objective, request.tokens_per_step, request.seq_len);
}

std::string memory_text(const PlannedRun& run, const PlanRequest& request) {
  const std::int64_t machine = std::min(request.gpus, request.cluster.node_size);
  return fmt::format("{:.1f} of {:.1f} GiB of a GPU, {:.1f} GiB of a machine's host memory",
                     gibibytes(run.estimate.total_bytes), gibibytes(run.estimate.available_bytes.value_or(0)),
                     gibibytes(run.estimate.host_bytes * machine));
}

std::string speed_text(const PlannedRun& run, const PlanRequest& request) {
  const double all = run.tokens_per_second();
  return fmt::format("{:.0f} tokens/s, {:.0f} a GPU; {:.2f} s a step", all, all / static_cast<double>(request.gpus),
                     run.estimate.time->total());
}

}  // namespace

std::string to_string(const Plan& plan, const PlanRequest& request) {
  std::string text = title(request) + "\n\n";
  const auto row = [&](std::string_view name, std::string_view value) {
    text += fmt::format("{:<18}{}\n", name, value);
  };
  for (std::size_t axis = 0; axis < plan.axes.size(); ++axis) row(plan.axes[axis], plan.best.choices[axis]);
  row("micro-batch", fmt::format("{} sequences, {} of them a step", plan.best.micro_batch,
                                 plan.best.sequences / std::max<std::int64_t>(1, plan.best.micro_batch)));
  row("memory", memory_text(plan.best, request));
  row("speed", speed_text(plan.best, request));
  row("rates", request.cluster.rates->source);
  text += "\nalternatives, one change at a time\n";
  std::size_t width = 0;
  const auto name = [](const PlanAlternative& other) {
    std::string all = fmt::format("{}: {}", other.axis, other.choice);
    for (const std::string& change : other.changed) all += ", " + change;
    return all;
  };
  for (const PlanAlternative& other : plan.alternatives) width = std::max(width, name(other).size());
  for (const PlanAlternative& other : plan.alternatives)
    text += fmt::format("  {:<{}}  {}\n", name(other), width, other.loses);
  return text + fmt::format("\n{} runs planned; predictions: docs/guide/plan.md\n", plan.estimates);
}

Json to_json(const Plan& plan, const PlanRequest& request) {
  Json json = Json::object();
  json.set("model", request.model);
  json.set("gpus", request.gpus);
  json.set("gpu", request.cluster.gpu->title());
  json.set("objective", request.objective);
  json.set("tokens_per_step", request.tokens_per_step);
  json.set("seq_len", request.seq_len);
  Json choices = Json::object();
  for (std::size_t axis = 0; axis < plan.axes.size(); ++axis) choices.set(plan.axes[axis], plan.best.choices[axis]);
  json.set("choices", std::move(choices));
  json.set("micro_batch_size", plan.best.micro_batch);
  json.set("memory_bytes", plan.best.estimate.total_bytes);
  json.set("available_bytes", plan.best.estimate.available_bytes.value_or(0));
  json.set("host_bytes_per_process", plan.best.estimate.host_bytes);
  json.set("tokens_per_second", plan.best.tokens_per_second());
  json.set("step_time", to_json(*plan.best.estimate.time));
  json.set("rates", request.cluster.rates->source);
  Json others = Json::array();
  for (const PlanAlternative& other : plan.alternatives) {
    Json entry = Json::object();
    entry.set("axis", other.axis);
    entry.set("choice", other.choice);
    Json changed = Json::array();
    for (const std::string& change : other.changed) changed.push_back(change);
    entry.set("changed", std::move(changed));
    entry.set("loses", other.loses);
    others.push_back(std::move(entry));
  }
  json.set("alternatives", std::move(others));
  json.set("estimates", plan.estimates);
  json.set("config", plan.best.document);
  return json;
}

std::string plan_config(const Plan& plan, const PlanRequest& request, const PlanData& data) {
  Json document = plan.best.document;
  Json training = document.at("training");
  if (data.steps)
    training.set("steps", *data.steps);
  else
    training.set("epochs", 1);
  document.set("training", std::move(training));
  if (!data.train.empty()) {
    Json sources = Json::array();
    for (const std::string& source : data.train) sources.push_back(source);
    Json section = document.at("data");
    section.set("train", std::move(sources));
    document.set("data", std::move(section));
  }
  std::map<std::string, std::string> ignored;
  (void)apply_overrides(document, request.overrides, ignored);
  std::string text = fmt::format("// {}\n// predicted: {}; {}\n", title(request), memory_text(plan.best, request),
                                 speed_text(plan.best, request));
  if (document.at("model").find("preset") != nullptr && document.find("lora") != nullptr)
    text += "// a preset has no weights: --unset=model.preset --model.path=FOLDER\n";
  if (data.train.empty()) text += "// data.train is missing: --data.train=FILE\n";
  return text + document.dump(2) + "\n";
}

}  // namespace quench
