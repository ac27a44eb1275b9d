#include "train/run_export/export_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/ops/quantize/sparsity_2_4.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "distributed/fsdp/gather_parameter.h"
#include "distributed/pipeline/whole_stages.h"
#include "export/table/fused_layers.h"
#include "export/table/reader_table.h"
#include "export/table/unfit_scheme.h"
#include "nn/experts/expert_linear.h"
#include "nn/experts/moe.h"
#include "nn/modules/linear.h"
#include "nn/modules/whole_rows.h"
#include "recipes/lora/quantized_base.h"
#include "recipes/sparse.h"
#include "train/config/recipe_choice.h"
#include "train/metrics/run_files.h"
#include "train/model_folder/gguf_adapter.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/stored_block_scales.h"
#include "train/run_export/trained_scheme.h"
#include "train/run_folder/run_outputs.h"
#include "train/session/learned_scales.h"
#include "train/session/whole_model.h"

namespace quench {
namespace {

std::optional<QuantizationRules> export_rules(const RunConfig& config, const QuantizationSection& section,
                                              const ModelSetup& setup, const std::vector<ModelTensor>& tensors) {
  const QuantizationFaults faults{.key = [](std::string_view member) { return fmt::format("export.{}", member); },
                                  .report =
                                      [](std::string_view member, const std::string& reason) {
                                        throw KeyError(ErrorCode::bad_config, fmt::format("export.{}", member), reason);
                                      }};
  std::optional<QuantizationRules> rules = resolve_quantization(section, faults);
  if (rules && !section.exclude && rules->scheme == simulated_scheme(config))
    rules->exclude = trained_scheme(config, *setup.model, setup.conversion).untrained_layers(tensors);
  return rules;
}

const ExportFormat& format_of(const RunConfig& config) {
  return require_export_format(config.export_model->format, "export.format");
}

DType export_dtype(const RunConfig& config) {
  return dtype_from_string(config.export_model->dtype).value_or(config.training.dtype);
}

bool writes_adapters(const RunConfig& config) {
  return is_adapter_format(config.export_model->format);
}

// Parameters of the model, and of quantized base weights.
std::vector<nn::Parameter*> shared_parameters(const ModelSetup& setup) {
  std::vector<nn::Parameter*> all = setup.model->parameters();
  for (nn::Parameter* parameter : setup.model->parameters())
    for (nn::Parameter* part : setup.base->parts(*parameter)) all.push_back(part);
  return all;
}

// With merged adapters. `whole` gathers shared_parameters().
nn::WholeRows merged(const ModelSetup& setup, const nn::WholeRows& whole) {
  if (setup.adapters == nullptr) return whole;
  return [&setup, whole](const nn::Parameter& parameter) {
    if (setup.base->holds(parameter)) {
      const Tensor values = setup.base->values(parameter, whole);
      setup.adapters->merge_into(parameter, values, whole);
      return values;
    }
    const Tensor rows = whole(parameter);
    const Tensor values = parameter.sharding.is_whole() ? rows.clone() : rows;  // not the model's own values
    setup.adapters->merge_into(parameter, values, whole);
    return values;
  };
}

// May be empty.
std::set<nn::Parameter*> pruned_weights(nn::CausalLm& model, const ExportSection& section) {
  if (section.sparsity.empty()) return {};
  return recipes::prunable_weights(model, recipes::require_sparsity(section.sparsity, "export.sparsity"),
                                   excluded_layers(section.quantization));
}

nn::WholeRows pruned(const nn::WholeRows& whole, const std::set<nn::Parameter*>& weights,
                     const ExportSection& section) {
  if (weights.empty()) return whole;
  const Sparsity24 rule = recipes::require_sparsity(section.sparsity, "export.sparsity");
  return [whole, weights, rule](const nn::Parameter& parameter) {
    const Tensor values = whole(parameter);
    if (std::ranges::find(weights, &parameter) == weights.end()) return values;
    Tensor kept = Tensor::empty_like(values);
    prune_2_4({values, kept, rule});
    return kept;
  };
}

// Gathers whole parameters on the calibrating rank. Restores layer kernels at the end: FSDP depends on which parameters
// train.
class UnitGatherer {
 public:
  UnitGatherer(nn::CausalLm& model, nn::WholeRows whole) : whole_(std::move(whole)) {
    model.visit([this](const std::string&, nn::Module& module) {
      if (auto* linear = dynamic_cast<nn::Linear*>(&module)) kernels_[linear] = linear->shared_kernel();
      if (auto* experts = dynamic_cast<nn::ExpertLinear*>(&module)) expert_kernels_[experts] = experts->shared_kernel();
      if (auto* moe = dynamic_cast<nn::MoE*>(&module)) moe->set_token_dispatcher(nullptr);  // all experts are gathered
    });
  }
  ~UnitGatherer() {
    for (const auto& [layer, kernel] : kernels_) layer->set_kernel(kernel);
    for (const auto& [layer, kernel] : expert_kernels_) layer->set_kernel(kernel);
  }
  UnitGatherer(const UnitGatherer&) = delete;
  UnitGatherer& operator=(const UnitGatherer&) = delete;

  void gather_unit(const std::vector<nn::Parameter*>& parameters) {
    const MemoryScope scope(MemoryCategory::parameters);
    for (nn::Parameter* parameter : parameters) {
      if (parameter->adapter || parameter->scales || !brought_.insert(parameter).second) continue;
      parameter->variable = nn::Variable(whole_(*parameter));
      parameter->whole = nn::Weight();
      parameter->padded = Tensor();
      parameter->sharding = {};
      parameter->shard = {0, parameter->global_shape[0]};
      parameter->mark_changed();
    }
  }
  // After calibration.
  [[nodiscard]] Tensor rows(const nn::Parameter& parameter) const {
    return brought_.contains(&parameter) ? parameter.variable.value() : whole_(parameter);
  }

 private:
  nn::WholeRows whole_;
  std::set<const nn::Parameter*> brought_;
  std::map<nn::Linear*, std::shared_ptr<const nn::LinearKernel>> kernels_;
  std::map<nn::ExpertLinear*, std::shared_ptr<const nn::ExpertKernel>> expert_kernels_;
};

// The base has fewer rows.
bool has_new_rows(const ModelSetup& setup, const RunConfig& config) {
  return !config.model.add_tokens.empty() && loads_weights(config) &&
         read_model_config(config.model.path).vocab_size < setup.config.vocab_size;
}

void export_adapters(const RunSession& session, const RunModel& description) {
  const RunConfig& config = session.config();
  const ModelSetup& setup = session.setup();
  // A hash of quantized values matches neither other programs' nor the dense folder's.
  const bool values = config.lora.has_value() && config.lora->base != recipes::BaseForm::stored;
  const AdapterBase base{values ? session.base_hash() : std::string(), config.training.dtype};
  QUENCH_CHECK(setup.adapters != nullptr, "export.format {} without adapters", config.export_model->format);
  const bool resized = has_new_rows(setup, config);
  const auto save = [&](const nn::WholeRows& whole) {
    if (config.export_model->format == kGgufLoraFormat) {
      QUENCH_CHECK_AS(ErrorCode::unsupported, !resized,
                      "export.format {}: llama.cpp's adapters hold no new tokens "
                      "(model.add_tokens); write a model with the adapters merged, format gguf",
                      kGgufLoraFormat);
      return save_gguf_adapter(*setup.model, *setup.adapters, export_target(config), export_dtype(config), whole);
    }
    save_adapter_folder(*setup.model, *setup.adapters, export_target(config),
                        {.dtype = export_dtype(config),
                         .base = config.model.path,
                         .trained_over = base,
                         .whole = whole,
                         .vocabulary = resized,
                         .tokenizer = config.model.add_tokens.empty() ? nullptr : description.tokenizer.get(),
                         .training = description.training,
                         .generation_ids = description.generation_ids});
  };
  std::vector<nn::Parameter*> gathered = setup.adapters->parameters();
  if (resized)
    for (nn::Parameter* parameter : vocabulary_parameters(*setup.model)) gathered.push_back(parameter);
  distributed::with_whole_parameters(gathered, session.ranks(), save);
}

// The config check throws if no program can run the export.
void warn_of_readers(const RunConfig& config, const ExportFormat& format, const QuantizationRules* rules,
                     const ExpertSchemes& experts) {
  const ExportSection& section = *config.export_model;
  const FolderReader* reader = section.reader.empty() ? nullptr : folder_readers().find(section.reader);
  try {
    for (const std::string& warning : check_readers(format, rules, export_dtype(config), experts, reader))
      QUENCH_LOG_WARN("export: {}", warning);
  } catch (const Error& error) {
    throw KeyError(ErrorCode::bad_config, reader != nullptr ? "export.reader" : "export.scheme", error.what());
  }
}

// Without a scheme in the config, where the format has some but not the trained one.
void warn_of_trained_scheme(const RunConfig& config, const ExportFormat& format) {
  const Scheme* trained = simulated_scheme(config);
  if (trained == nullptr || !config.export_model->quantization.scheme.empty()) return;
  const std::string problem = format.problem(*trained);
  const auto stores = [&](const Scheme& scheme) { return format.problem(scheme).empty(); };
  if (problem.empty() || !std::ranges::any_of(scheme_table(), stores)) return;
  QUENCH_LOG_WARN("export: the run trains {}, which format {} cannot store ({}); the weights are stored unquantized",
                  trained->name, format.name, problem);
}

// Scales of integers that the file rounds further than training did.
void warn_of_rounded_scales(const RunConfig& config, const QuantizationRules& rules) {
  const Scheme* trained = simulated_scheme(config);
  if (trained == nullptr || rules.scheme != trained || !recipes::find_recipe(config.recipe.name).has_key("scale_dtype"))
    return;
  const DType used = dtype_from_string(config.recipe.scale_dtype).value_or(config.training.dtype),
              stored = rules.scale_dtype.value_or(export_dtype(config));
  if (stored == used || stored == DType::f32 || (used == DType::bf16 && stored == DType::f16)) return;
  QUENCH_LOG_WARN(
      "export: scales are trained in {} and stored in {}, so that values differ by a rounding; "
      "recipe.scale_dtype \"{}\" trains what is stored",
      to_string(used), to_string(stored), to_string(stored));
}

void warn_of_fused_layers(const RunConfig& config, const ExportFormat& format, const std::vector<ModelTensor>& tensors,
                          const QuantizationRules& rules) {
  const std::string& reader = config.export_model->reader;
  try {
    for (const std::string& warning :
         check_fused_layers(format, tensors, rules, reader.empty() ? nullptr : folder_readers().find(reader)))
      QUENCH_LOG_WARN("export: {}", warning);
  } catch (const Error& error) {
    throw KeyError(ErrorCode::bad_config, "export.reader", error.what());
  }
}

}  // namespace

void require_exportable(const RunSession& session) {
  const RunConfig& config = session.config();
  const ModelSetup& setup = session.setup();
  if (!config.export_model || writes_adapters(config)) return;
  try {
    const ExportFormat& format = format_of(config);
    if (format.require_model != nullptr) format.require_model(setup.config);
    const WholeModel whole(*setup.model);
    std::vector<ModelTensor> tensors = model_tensors(whole.model(), config.training.dtype);
    if (!format.mtp) leave_out_mtp(tensors, setup.config);
    if (nn::ModelConfig stored = setup.config; format.fold != nullptr) format.fold(tensors, stored);
    (void)pruned_weights(*setup.model, *config.export_model);
    if (config.export_model->quantization.scheme.empty()) warn_of_readers(config, format, nullptr, {});
    warn_of_trained_scheme(config, format);
    const QuantizationSection quantization =
        section_of_method(config.export_model->quantization, quantizers().front().name);
    if (auto rules = export_rules(config, quantization, setup, tensors)) {
      apply_format(format, *rules, tensors, setup.config);
      require_quantizable(tensors, *rules);
      warn_of_readers(config, format, &*rules, expert_schemes(tensors, *rules, setup.config));
      warn_of_fused_layers(config, format, tensors, *rules);
      if (const auto unfit = unfit_scheme(format, tensors, *rules, folder_readers().find(config.export_model->reader)))
        QUENCH_LOG_WARN("export: {}", to_text(*unfit));
      const TrainedScheme trained = trained_scheme(config, *setup.model, setup.conversion);
      trained.require_kept_codes(tensors, *rules);
      trained.warn_of_others(tensors, *rules);
      warn_of_rounded_scales(config, *rules);
      try {
        require_readable_table(format, *rules, setup.config);
      } catch (const Error& error) {
        throw KeyError(ErrorCode::bad_config, "export.embeddings", error.what());
      }
    }
  } catch (const KeyError&) {
    throw;
  } catch (const Error& error) {  // the section does not fit this model
    const bool refused = error.code() == ErrorCode::unsupported || error.code() == ErrorCode::invalid_argument;
    throw Error(refused ? ErrorCode::bad_config : error.code(), fmt::format("export: {}", error.what()));
  }
}

void prepare_export(const RunSession& session) {
  if (writes_adapters(session.config()) || !session.ranks().is_single()) return;
  recipes::make_dense(session.model());
  if (session.setup().adapters != nullptr) session.setup().adapters->merge();
  const ExportSection& section = *session.config().export_model;
  if (!section.sparsity.empty())
    (void)recipes::prune(session.model(), recipes::require_sparsity(section.sparsity, "export.sparsity"),
                         excluded_layers(section.quantization));
}

ModelFolderReport export_model(const RunSession& session, const RunModel& description, ExportPass pass) {
  const RunConfig& config = session.config();
  const ModelSetup& setup = session.setup();
  nn::CausalLm& model = session.model();
  if (writes_adapters(config)) {
    export_adapters(session, description);
    return {};
  }
  const ExportSection& section = *config.export_model;
  const std::filesystem::path kept = std::filesystem::path(config.run.folder) / run_files::kModelFolder;
  ModelFolderOptions options;
  options.format = &format_of(config);
  options.dtype = export_dtype(config);
  options.config = &description.config;
  options.small_files = {.model = kept,
                         .tokenizer_folder = kept,
                         .tokenizer = description.tokenizer.get(),
                         .generation_ids = description.generation_ids};
  const WholeModel whole_model(model);
  std::vector<ModelTensor> tensors = model_tensors(whole_model.model(), options.dtype);
  if (!options.format->mtp) leave_out_mtp(tensors, setup.config);
  options.quantization = export_rules(config, pass.quantization, setup, tensors);
  if (options.quantization) {
    options.quantization->values_dtype = config.training.dtype;
    options.quantization->device = model.options().device;
    options.card = {.source = config.run.folder, .perplexity_data = pass.validation_data, .perplexity = {}};
  }
  options.accept = std::move(pass.accept);
  ModelFolderReport report;
  // `held`: the model whose parameters `whole` gathers.
  const auto save = [&](nn::CausalLm& held, const nn::WholeRows& whole) {
    if (options.quantization) trained_scales(model, config, whole).choose_in(*options.quantization);
    if (options.quantization && loads_weights(config))
      options.quantization->block_scales = stored_block_scales(config.model.path);
    if (whole)
      options.whole = whole_model.rows(held, pruned(merged(setup, whole), pruned_weights(model, section), section));
    std::optional<UnitGatherer> units;
    if (pass.calibration != nullptr) {
      options.quantization->calibration = std::move(pass.calibration);
      if (whole) {
        units.emplace(model, options.whole);
        options.quantization->gather_unit = [&units](const std::vector<nn::Parameter*>& unit) {
          units->gather_unit(unit);
        };
        options.whole = [&units](const nn::Parameter& parameter) { return units->rows(parameter); };
      }
      // Inputs of the unconverted weights.
      (void)recipes::apply_recipe(model, recipes::kBf16, {});
    }
    if (!options.card) options.card.emplace();
    options.card->source = config.run.folder;
    options.card->training = description.training;
    report = save_model_folder(whole_model.model(), export_target(config), options);
  };
  if (model.is_whole())
    distributed::with_whole_parameters(shared_parameters(setup), session.ranks(),
                                       [&](const nn::WholeRows& whole) { save(model, whole); });
  else
    distributed::with_whole_model(model, session.ranks(), save);
  return report;
}

}  // namespace quench
