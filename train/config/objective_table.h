#pragma once
// Table of training objectives: what the config, its checks, data, output folders, start report, model card, early
// stopping, estimate and trainer ask about the loss that a run minimizes. One entry for each folder of
// train/objectives/; plug-ins add theirs with Registered<ObjectiveEntry>.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/choice_table.h"
#include "data/text/policies.h"
#include "train/config/key_aliases.h"
#include "train/config/run_config.h"

namespace quench::nn {
class CausalLm;
struct ModelConfig;
struct ParameterOptions;
}  // namespace quench::nn

namespace quench {

class Checker;
struct Field;
struct ObjectiveRuntime;  // train/session/run_objective.h

// Config section of an objective, named like its entry.
struct ObjectiveSection {
  std::string_view help{};  // empty: there is none
  bool (*present)(const RunConfig& config) = nullptr;
  void (*add)(RunConfig& config) = nullptr;
  // Rows of the field table: add_field() with QUENCH_OBJECTIVE_MEMBER (train/config/fields/field_builder.h).
  void (*add_fields)(std::vector<Field>& fields) = nullptr;
};

// Section of type `Section` in RunConfig::objectives.
template <class Section>
[[nodiscard]] ObjectiveSection objective_section(std::string_view help, void (*add_fields)(std::vector<Field>&)) {
  return {.help = help,
          .present = [](const RunConfig& config) { return config.objectives.find<Section>() != nullptr; },
          .add = [](RunConfig& config) { (void)config.objectives.emplace<Section>(); },
          .add_fields = add_fields};
}

// Validation value by which evaluation.early_stopping and checkpoint.keep_best may choose.
struct ObjectiveMetric {
  std::string_view name;  // in EvaluationMetrics::values
  bool is_higher_better;
};

// Folder that an objective reads: no output may replace it.
struct ObjectiveFolder {
  std::string_view key;  // config key
  std::string path;
  bool is_second_model = false;  // its weights belong to the run's identity
};

// A training objective by name. Functions that are null: nothing, or what their comment says.
struct ObjectiveEntry {
  std::string_view name;
  std::string_view summary;
  ObjectiveSection section{};
  std::span<const ForeignKey> aliases{};  // other programs' names of its keys
  // Whether it trains the run; null: where the section is present.
  bool (*trains)(const RunConfig& config) = nullptr;
  // Fills what the section leaves open; null: nothing.
  void (*derive)(RunConfig& config) = nullptr;
  // Contradictions of its section with other keys; called where the section is present. Null: none.
  void (*check)(Checker& checker) = nullptr;
  // The same over the run's model; called for every run. Null: none.
  void (*check_model)(Checker& checker, const nn::ModelConfig& model) = nullptr;
  // Records of the training and validation data; null: documents.
  AnswerRecords (*records)(const RunConfig& config) = nullptr;
  // Optimizer steps over the data of one: the others read none. Null: 1.
  std::int64_t (*steps_of_data)(const RunConfig& config) = nullptr;
  // Besides "loss".
  std::span<const ObjectiveMetric> metrics{};
  // Validation measures the mean cross-entropy of a token, whose exponential is a perplexity.
  bool is_likelihood = true;
  std::vector<ObjectiveFolder> (*folders)(const RunConfig& config) = nullptr;
  // "distill: ..." for the start report, a line; null: none.
  std::string (*describe)(const RunConfig& config) = nullptr;
  // "distillation from teacher-8b (forward_kl)" for the model card; null: none.
  std::string (*facts)(const RunConfig& config) = nullptr;
  // "DPO" in lists of runs; null: none.
  std::string (*method)(const RunConfig& config) = nullptr;
  // Its losses are right where a batch is a part of longer sequences (Batch::part): parallel.context may be above 1.
  bool takes_parts = false;
  // Its losses read no logits but through the model's head, whose vocabulary may be in parts: parallel.tensor may be
  // above 1.
  bool takes_slices = false;
  // Its loss reads the model through hidden() and head_loss() alone, once: parallel.pipeline may be above 1.
  bool takes_stages = false;
  std::string_view qat_method = "QAT";  // under a recipe of quantization-aware training
  // Adds the objective's own parameters to the run's model, with `options`, before it is loaded; null: none.
  void (*extend)(nn::CausalLm& model, const RunConfig& config, const nn::ParameterOptions& options) = nullptr;
  // Null in programs that are linked without the training of runs.
  const ObjectiveRuntime* runtime = nullptr;
};

// Next-token cross-entropy first. Defined in train/objectives/.
[[nodiscard]] const ChoiceTable<ObjectiveEntry>& objective_table();

// The entry that trains the run; the first of the table where no other does.
[[nodiscard]] const ObjectiveEntry& objective_of(const RunConfig& config);

// ObjectiveEntry::steps_of_data of the run's objective.
[[nodiscard]] std::int64_t steps_of_data(const RunConfig& config);
// Records that the run reads.
[[nodiscard]] AnswerRecords answer_records(const RunConfig& config);
// Folders that all objectives of the config read.
[[nodiscard]] std::vector<ObjectiveFolder> objective_folders(const RunConfig& config);
// Empty, or the first section of an objective that the config holds.
[[nodiscard]] std::string_view objective_section_of(const RunConfig& config);

}  // namespace quench
