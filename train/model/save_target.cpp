#include "train/model/save_target.h"

#include <algorithm>

#include "core/system/log.h"
#include "core/system/output_file.h"
#include "export/budget/plan_file.h"
#include "export/formats/gguf/parts.h"
#include "export/formats/gguf/writer.h"
#include "export/imatrix/imatrix.h"
#include "recipes/sparse.h"
#include "train/model/save_plan.h"

namespace quench {
namespace {

constexpr double kMostTargetBits = 32;
constexpr std::int64_t kMostSearchSteps = 1 << 24;
constexpr std::string_view kByteFormat = "torchao";

// Adapters are stored as trained.
void refuse_options_of_models(const SavePlan& plan) {
  const SaveTarget& target = plan.target;
  const QuantizationSection& section = target.quantization;
  for (const auto& [member, given] :
       {std::pair("sparsity", !target.sparsity.empty()), std::pair("rotate", target.rotate),
        std::pair("scheme", !section.scheme.empty()), std::pair("kv_cache", !target.kv_cache.empty()),
        std::pair("target_bits", target.target_bits.has_value()), std::pair("target_size", !target.target_size.empty()),
        std::pair("rules", !section.rules.empty()), std::pair("embeddings", !section.embeddings.empty()),
        std::pair("calibration", !section.calibration.empty()), std::pair("imatrix", !section.imatrix.empty()),
        std::pair("save_imatrix", !section.save_imatrix.empty()), std::pair("perplexity", !target.perplexity.empty())})
    QUENCH_CHECK_AS(ErrorCode::bad_config, !given,
                    "{} is for whole models, and {} {} writes adapters alone; choose another format, or omit it",
                    plan.key(member), plan.key("format"), target.format);
}

std::optional<QuantizationRules> resolved_rules(const SavePlan& plan, const QuantizationSection& section) {
  return resolve_quantization(section, {.key = [&](std::string_view member) { return plan.key(member); },
                                        .report =
                                            [&](std::string_view member, const std::string& reason) {
                                              QUENCH_FAIL(ErrorCode::bad_config, "{} {}", plan.key(member), reason);
                                            },
                                        .warn =
                                            [&](std::string_view member, const std::string& reason) {
                                              const bool measures =
                                                  (plan.budget || plan.kv_cache) && member == "calibration";
                                              if (!measures) QUENCH_LOG_WARN("{} {}", plan.key(member), reason);
                                            }});
}

// Limits of a budget, without candidates; nullopt: none.
std::optional<BitBudget> asked_budget(const SavePlan& plan) {
  const SaveTarget& target = plan.target;
  if (!target.target_bits && target.target_size.empty()) return std::nullopt;
  const std::string bits = plan.key("target_bits"), size = plan.key("target_size");
  QUENCH_CHECK_AS(ErrorCode::bad_config, !target.target_bits || target.target_size.empty(),
                  "{} and {} are two budgets: name one", bits, size);
  const std::string trials = plan.key("search_steps");
  QUENCH_CHECK_AS(ErrorCode::bad_config, target.search_steps >= 0 && target.search_steps <= kMostSearchSteps,
                  "{} {}: expected 0 to {}", trials, target.search_steps, kMostSearchSteps);
  QUENCH_CHECK_AS(ErrorCode::bad_config, target.quantization.plan.empty(),
                  "{} and {} are two choices of schemes: name one", plan.key("plan"), target.target_bits ? bits : size);
  BitBudget budget{.search_steps = target.search_steps};
  if (target.target_bits) {
    budget.bits = *target.target_bits;
    QUENCH_CHECK_AS(ErrorCode::bad_config, budget.bits > 0 && budget.bits <= kMostTargetBits,
                    "{} {}: expected bits a weight, more than 0 and at most {}", bits, budget.bits, kMostTargetBits);
    return budget;
  }
  const auto bytes = parse_file_size(target.target_size);
  QUENCH_CHECK_AS(ErrorCode::bad_config, bytes.has_value(),
                  "{} '{}' is no size: expected a number above 0 with kB, MB, GB, KiB, MiB or GiB, such as 5GB", size,
                  target.target_size);
  QUENCH_CHECK_AS(ErrorCode::bad_config, plan.format->name != kByteFormat,
                  "{} has no effect on format {}, which stores integers of any width in 8 bits; use {}", size,
                  kByteFormat, bits);
  budget.bytes = *bytes;
  return budget;
}

// Rules under the first candidate, and the candidates.
void choose_candidates(SavePlan& plan) {
  QuantizationSection section = plan.target.quantization;
  const std::string names = section.scheme, key = plan.key("scheme");
  const bool with_importance = !section.imatrix.empty() || !section.calibration.empty();
  plan.budget->candidates = candidate_schemes(names, *plan.format, plan.reader, with_importance, key);
  const auto first =
      std::ranges::find_if(plan.budget->candidates, [](const Scheme* scheme) { return scheme != nullptr; });
  section.scheme = (*first)->name;
  plan.rules = resolved_rules(plan, section);
  if (plan.format->tied_embeddings && !section.exclude) plan.rules->exclude.clear();  // with the head
  const Quantizer& quantizer = *plan.rules->quantizer;
  std::string reason;
  std::erase_if(plan.budget->candidates, [&](const Scheme* scheme) {
    const std::string problem = scheme == nullptr ? "" : quantizer.problem(*scheme);
    if (!problem.empty()) reason = problem;
    return !problem.empty();
  });
  QUENCH_CHECK_AS(ErrorCode::bad_config,
                  std::ranges::any_of(plan.budget->candidates, [](const Scheme* scheme) { return scheme != nullptr; }),
                  "{} {} suits none of the schemes that {} may choose: {}", plan.key("method"), section.method,
                  plan.key(plan.budget->bits > 0 ? "target_bits" : "target_size"), reason);
}

std::optional<KvCacheScheme> asked_kv_cache(const SavePlan& plan) {
  const SaveTarget& target = plan.target;
  const std::string key = plan.key("kv_cache"), scales = plan.key("kv_cache_scales");
  if (target.kv_cache.empty()) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, target.kv_cache_scales.empty(), "{} has no effect without {}", scales, key);
    return std::nullopt;
  }
  const KvCacheScheme scheme{&kv_formats().require(target.kv_cache, key),
                             target.kv_cache_scales.empty()
                                 ? &kv_scale_choices().front()
                                 : &kv_scale_choices().require(target.kv_cache_scales, scales)};
  QUENCH_CHECK_AS(ErrorCode::bad_config, plan.format->kv_cache,
                  "{} {}: format {} does not store how readers quantize the KV cache; compressed-tensors does", key,
                  target.kv_cache, plan.format->name);
  const bool with_data = !target.quantization.calibration.empty();
  QUENCH_CHECK_AS(ErrorCode::bad_config, with_data || scheme.scales->dynamic,
                  "{} is missing: {} {} needs calibration data for its scales; name files of text or tokens, or {} "
                  "dynamic",
                  plan.key("calibration"), key, target.kv_cache, scales);
  if (scheme.format != &kv_formats().front())
    QUENCH_LOG_WARN("{} {}: Quench alone reads such a KV cache; vLLM refuses types other than float ({})", key,
                    target.kv_cache, kv_formats().front().name);
  return scheme;
}

std::string_view weights_file_of_adapters(std::string_view format) {
  return format == kGgufLoraFormat ? kGgufFileName : std::string_view();
}

// Early check, before the model is read, for models that no dtype makes runnable.
void refuse_unreadable(const SavePlan& plan) {
  const auto check = [&](DType dtype) {
    (void)check_readers(*plan.format, plan.rules ? &*plan.rules : nullptr, dtype, {}, plan.reader);
  };
  if (const auto dtype = dtype_from_string(plan.target.dtype)) return check(*dtype);
  try {
    check(DType::f32);
  } catch (const Error&) {
    check(DType::bf16);
  }
}

// Files that are read, which no side file may replace.
std::vector<std::filesystem::path> inputs_of(const SavePlan& plan) {
  std::vector<std::filesystem::path> inputs = plan.place.sources;
  const QuantizationSection& section = plan.target.quantization;
  if (!section.imatrix.empty()) inputs.emplace_back(section.imatrix);
  for (const std::vector<std::string>* files : {&section.calibration, &plan.target.perplexity})
    for (const std::string& file : *files)
      if (std::filesystem::is_regular_file(file)) inputs.emplace_back(file);
  return inputs;
}

// Output, plan and matrix are three files.
void require_own_paths(const SavePlan& plan) {
  const auto placed = [](const std::filesystem::path& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path));
  };
  const std::string &matrix = plan.target.quantization.save_imatrix, &choice = plan.target.save_plan;
  const auto require_other = [&](const std::string& file, std::string_view member, const std::filesystem::path& other,
                                 const std::string& what) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, file.empty() || other.empty() || placed(file) != placed(other),
                    "{} {} is the path of {} too: name another", plan.key(member), file, what);
  };
  require_other(matrix, "save_imatrix", plan.target.path, "the model that is written");
  require_other(choice, "save_plan", plan.target.path, "the model that is written");
  require_other(choice, "save_plan", matrix, plan.key("save_imatrix"));
}

// The file of the matrix that is read, and a place for that which is computed.
void check_matrix_files(const SavePlan& plan) {
  const QuantizationSection& section = plan.target.quantization;
  if (!section.imatrix.empty()) (void)read_imatrix(section.imatrix);
  if (section.save_imatrix.empty()) return;
  const auto is_matrix = [](const std::filesystem::path& file) {
    try {
      return !read_imatrix(file).entries.empty();
    } catch (const Error&) {
      return false;
    }
  };
  require_output_file(section.save_imatrix, {.option = plan.key("save_imatrix"),
                                             .overwrite = plan.target.overwrite,
                                             .stream = false,
                                             .inputs = inputs_of(plan),
                                             .is_own = is_matrix});
}

// A place for the plan: no other file.
void check_plan_file(const SavePlan& plan) {
  const std::string& file = plan.target.save_plan;
  if (file.empty()) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, plan.budget.has_value(), "{} has no effect without {} or {}",
                  plan.key("save_plan"), plan.key("target_bits"), plan.key("target_size"));
  const auto is_plan = [](const std::filesystem::path& path) {
    try {
      QuantizationRules rules;
      read_plan(path, "plan", rules);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  require_output_file(file, {.option = plan.key("save_plan"),
                             .overwrite = plan.target.overwrite,
                             .stream = false,
                             .inputs = inputs_of(plan),
                             .is_own = is_plan});
}

void choose_format(SavePlan& plan) {
  const SaveTarget& target = plan.target;
  plan.format = &require_export_format(target.format, plan.key("format"));
  if (!target.reader.empty()) plan.reader = &folder_readers().require(target.reader, plan.key("reader"));
  plan.budget = asked_budget(plan);
  plan.kv_cache = asked_kv_cache(plan);
  if (plan.budget) {
    choose_candidates(plan);
  } else {
    QuantizationSection section = target.quantization;
    if (plan.kv_cache && section.scheme.empty() && section.plan.empty())
      section.calibration.clear();  // for the cache alone
    plan.rules = resolved_rules(plan, section);
  }
  check_format_and_rules(*plan.format, plan.rules ? &*plan.rules : nullptr, plan.kv_cache.has_value());
  refuse_unreadable(plan);
  require_own_paths(plan);
  check_matrix_files(plan);
  check_plan_file(plan);
  QUENCH_CHECK_AS(ErrorCode::bad_config, target.dtype != "f16" || !plan.rules,
                  "{} f16 is for weights that are not quantized; use bf16 or f32 with a scheme", plan.key("dtype"));
}

// Options made for the unrotated weights.
void refuse_beside_rotation(const SavePlan& plan) {
  if (!plan.target.rotate) return;
  QUENCH_CHECK_AS(ErrorCode::bad_config, plan.target.sparsity.empty(),
                  "{} and {}: a rotation mixes pruned weights with others; name one of the two", plan.key("rotate"),
                  plan.key("sparsity"));
  QUENCH_CHECK_AS(ErrorCode::bad_config, plan.target.quantization.imatrix.empty(),
                  "{} and {}: the matrix is of the inputs of the unrotated model; name its text as {}",
                  plan.key("rotate"), plan.key("imatrix"), plan.key("calibration"));
}

}  // namespace

std::string SavePlan::key(std::string_view member) const {
  return target.key ? target.key(member) : std::string(member);
}

bool SavePlan::keeps_weights() const {
  return format != nullptr && !rules && !sparsity && !target.rotate && !kv_cache && target.perplexity.empty();
}

SavePlan plan_save(const SaveTarget& target, const std::vector<std::filesystem::path>& sources) {
  SavePlan plan{.target = target,
                .place = {.folder = target.path, .overwrite = target.overwrite, .sources = sources, .kept = {}}};
  for (const std::filesystem::path& source : sources)
    if (const auto part = gguf_part_name(source))
      for (std::int64_t number = 1; number <= part->count; ++number) plan.place.sources.push_back(part->file(number));
  const bool adapters_alone = is_adapter_format(target.format);
  refuse_beside_rotation(plan);
  if (!adapters_alone) choose_format(plan);
  if (!target.sparsity.empty()) plan.sparsity = recipes::require_sparsity(target.sparsity, plan.key("sparsity"));
  if (adapters_alone) refuse_options_of_models(plan);
  require_file_format(plan.place, target.format,
                      adapters_alone ? weights_file_of_adapters(target.format) : plan.format->weights_file);
  require_export_target(plan.place);
  return plan;
}

Json to_json(const SavedModel& saved) {
  Json json = Json::object();
  json.set("output", saved.path.string());
  json.set("format", saved.format);
  if (is_adapter_format(saved.format)) {
    json.set("adapted_layers", static_cast<std::int64_t>(saved.adapted_layers));
    return json;
  }
  const ModelFolderReport& report = saved.report;
  json.set("dtype", to_string(saved.dtype));
  json.set("parameters", saved.parameters);
  json.set("scheme", saved.scheme.empty() ? Json() : Json(saved.scheme));
  if (!saved.kv_cache.empty()) json.set("kv_cache", saved.kv_cache);
  if (saved.rotation) {
    Json rotation = Json::object();
    rotation.set("matrix", saved.rotation->hadamard ? "hadamard" : "orthogonal");
    rotation.set("head_bytes", saved.rotation->head_bytes);
    json.set("rotation", std::move(rotation));
  }
  if (saved.unfit) json.set("unfit", to_json(*saved.unfit));
  if (saved.plan) json.set("plan", to_json(*saved.plan));
  json.set("layers", to_json(report.layers));
  json.set("file_bytes", report.file_bytes);
  if (report.perplexity_before) json.set("perplexity_before", *report.perplexity_before);
  if (report.perplexity) json.set("perplexity", *report.perplexity);
  return json;
}

void check_save_target(const SaveTarget& target, const std::vector<std::filesystem::path>& sources) {
  (void)plan_save(target, sources);
}

}  // namespace quench
