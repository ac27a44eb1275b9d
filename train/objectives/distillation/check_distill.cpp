#include <filesystem>
#include <set>

#include "recipes/recipe.h"
#include "train/check/checker.h"
#include "train/config/recipe_choice.h"
#include "train/model_source/model_source.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/stored_targets.h"

namespace quench {
namespace {

void check_teacher_folder(Checker& checker) {
  const DistillSection& distill = *distill_section(checker.config());
  if (!checker.options().files || (checker.options().targets && !distill.targets.empty())) return;
  try {
    const ModelSource source = ModelSource::open(distill.teacher, "teacher");
    source.require_model();
    const bool quantized = source.is_quantized(source.config());
    if (distill.teacher_weights == recipes::BaseForm::stored && !quantized &&
        checker.usable({"distill.teacher_weights"}))
      checker.report("distill.teacher_weights",
                     "stored, but the weights in {} are not quantized; set it to dense, float8 or nf4",
                     distill.teacher);
  } catch (const Error& error) {
    checker.report("distill.teacher", "{} (or one of {}, {})", error.what(), kBaseTeacher, kInitialTeacher);
  }
}

// The student of step 0 equals its teacher: no gradient.
void check_difference(Checker& checker) {
  const RunConfig& config = checker.config();
  if (!checker.usable({"recipe.name", "distill.ratio"}) || config.recipe.name == kAutoRecipe) return;
  if (distill_section(config)->ratio < 1 || config.recipe.name != recipes::kBf16.name) return;
  checker.report("distill.teacher",
                 "{}: under recipe {} the student equals this teacher, and a loss without cross-entropy has no "
                 "gradient; choose a qat recipe, a model folder as teacher, or distill.ratio below 1",
                 distill_section(config)->teacher, config.recipe.name);
}

void check_targets(Checker& checker) {
  const DistillSection& distill = *distill_section(checker.config());
  const DistillSection unset;
  if (!checker.usable({"distill.targets"})) return;
  if (distill.targets.empty()) {
    for (const auto& [key, changed] : {std::pair("distill.top_k", distill.top_k != unset.top_k),
                                       {"distill.targets_dtype", distill.targets_dtype != unset.targets_dtype}})
      if (changed && checker.usable({key})) checker.report(key, "has no effect without distill.targets");
    return;
  }
  const CheckOptions& options = checker.options();
  if (options.files && std::filesystem::exists(distill.targets) && !std::filesystem::is_directory(distill.targets)) {
    checker.report("distill.targets", "{} is a file; name a folder", distill.targets);
    return;
  }
  if (options.files && options.targets &&
      !std::filesystem::exists(std::filesystem::path(distill.targets) / kTargetsFile))
    checker.report("distill.targets", "{} holds no targets of a teacher ({}); run `{}` with this config first",
                   distill.targets, kTargetsFile, kTargetsRemedy);
}

void check_hidden(Checker& checker) {
  const DistillSection& distill = *distill_section(checker.config());
  const DistillSection::Hidden& hidden = distill.hidden;
  const DistillSection::Hidden unset;
  if (!checker.usable({"distill.hidden.weight"})) return;
  if (hidden.weight == 0) {
    for (const auto& [key, changed] : {std::pair("distill.hidden.layers", hidden.layers != unset.layers),
                                       {"distill.hidden.teacher_layers", hidden.teacher_layers != unset.teacher_layers},
                                       {"distill.hidden.loss", hidden.loss != unset.loss}})
      if (changed && checker.usable({key})) checker.report(key, "has no effect without distill.hidden.weight");
    return;
  }
  if (!distill.targets.empty() && checker.usable({"distill.targets"}))
    checker.report("distill.hidden.weight",
                   "{}, but stored targets (distill.targets) hold no hidden states; set one of them only",
                   hidden.weight);
  if (!checker.usable({"distill.hidden.layers"})) return;
  std::set<std::int64_t> seen;
  for (const std::int64_t layer : hidden.layers)
    if (!seen.insert(layer).second) {
      checker.report("distill.hidden.layers", "names layer {} twice; name each layer once", layer);
      break;
    }
}

void check_on_policy(Checker& checker) {
  const RunConfig& config = checker.config();
  const DistillSection &distill = *distill_section(config), unset;
  if (!checker.usable({"distill.on_policy"})) return;
  if (distill.on_policy == 0) {
    for (const auto& [key, changed] :
         {std::pair("distill.max_completion_length", distill.max_completion_length != unset.max_completion_length),
          {"distill.sampling_temperature", distill.sampling_temperature != unset.sampling_temperature},
          {"distill.log_completions", distill.log_completions != unset.log_completions}})
      if (changed && checker.usable({key})) checker.report(key, "has no effect without distill.on_policy");
    return;
  }
  if (!distill.targets.empty() && checker.usable({"distill.targets"}))
    checker.report("distill.on_policy",
                   "{}, but stored targets (distill.targets) hold none of sampled answers; set one", distill.on_policy);
  if (config.data.packing && !config.data.multipack && checker.usable({"data.packing", "data.multipack"}))
    checker.report("data.multipack",
                   "false, and a slice of packed documents may begin within a prompt, which distill.on_policy answers; "
                   "set it to true, or data.packing to false");
  if (distill.ratio < 1 && checker.usable({"distill.ratio"}))
    checker.report("distill.ratio",
                   "{}, but cross-entropy with the student's own answers (distill.on_policy) has no right answer; set "
                   "it to 1",
                   distill.ratio);
  if (checker.usable({"distill.max_completion_length", "data.seq_len"}) &&
      distill.max_completion_length >= config.data.seq_len)
    checker.report("distill.max_completion_length",
                   "{}, but prompt and answer share a sequence of data.seq_len {}; use fewer, or raise data.seq_len",
                   distill.max_completion_length, config.data.seq_len);
  if (config.parallel.expert > 1 && checker.usable({"parallel.expert"}))
    checker.report("parallel.expert",
                   "{}, but each process samples from whole weights (distill.on_policy); set it to 1",
                   config.parallel.expert);
}

// Rows of sampled answers and of stored targets are whole sequences.
void check_parts(Checker& checker) {
  const RunConfig& config = checker.config();
  const DistillSection& distill = *distill_section(config);
  if (config.parallel.context == 1 || !checker.usable({"parallel.context", "distill.targets", "distill.on_policy"}))
    return;
  if (const char* key = !distill.targets.empty() ? "distill.targets"
                        : distill.on_policy > 0  ? "distill.on_policy"
                                                 : nullptr;
      key != nullptr)
    checker.report("parallel.context", "{}, but {} needs whole sequences; set it to 1", config.parallel.context, key);
}

}  // namespace

void check_distill(Checker& checker) {
  const RunConfig& config = checker.config();
  const DistillSection& distill = *distill_section(config);
  if (distill.loss != Divergence::jensen_shannon && distill.beta != DistillSection().beta &&
      checker.usable({"distill.loss", "distill.beta"}))
    checker.report("distill.beta", "{} has no effect on this distill.loss; it belongs to jensen_shannon", distill.beta);
  check_targets(checker);
  check_hidden(checker);
  check_on_policy(checker);
  check_parts(checker);
  if (!checker.usable({"distill.teacher"})) return;
  const bool base = distill.teacher == kBaseTeacher, initial = distill.teacher == kInitialTeacher;
  if (base && !config.lora) {
    checker.report("distill.teacher",
                   "base is the frozen weights under adapters, and the run has none; use initial (a frozen copy of the "
                   "weights at step 0) or a model folder, or add section lora");
    return;
  }
  if (base && distill.teacher_weights != recipes::BaseForm::dense && checker.usable({"distill.teacher_weights"}))
    checker.report("distill.teacher_weights", "has no effect with distill.teacher base, which is no second model");
  if (base && distill.offload && checker.usable({"distill.offload"}))
    checker.report("distill.offload", "has no effect with distill.teacher base, which is no second model");
  if (initial && distill.teacher_weights == recipes::BaseForm::stored && checker.usable({"distill.teacher_weights"}))
    checker.report("distill.teacher_weights",
                   "stored needs a quantized folder in distill.teacher; set it to dense, float8 or nf4");
  if (base || initial)
    check_difference(checker);
  else
    check_teacher_folder(checker);
}

}  // namespace quench
