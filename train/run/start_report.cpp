#include "train/run/start_report.h"
#include "train/config/objective_table.h"

#include <map>

#include "export/table/format.h"
#include "nn/modules/linear.h"
#include "nn/optim/table.h"
#include "nn/spec/rope_config.h"
#include "nn/spec/rope_override.h"
#include "recipes/float8/hardware.h"
#include "train/check/check.h"
#include "train/config/recipe_choice.h"
#include "train/metrics/step_metrics.h"
#include "train/plan/estimate.h"
#include "train/plan/saved_inputs.h"
#include "train/plan/training_flops.h"
#include "train/session/adapter_setup.h"
#include "train/session/parallel_setup.h"
#include "train/session/trained_parameters.h"

namespace quench {
namespace {

std::string export_line(const RunConfig& config) {
  const ExportSection& section = *config.export_model;
  const std::string& scheme = section.quantization.scheme;
  if (is_adapter_format(section.format)) return fmt::format("{}: the adapters", section.format);
  if (!scheme.empty()) return fmt::format("{}, {}", section.format, scheme);
  const bool few_bits =
      config.recipe.name != kAutoRecipe && recipes::find_recipe(config.recipe.name).capabilities.scheme != nullptr;
  return fmt::format("{}, in high precision{}", section.format,
                     few_bits && simulated_scheme(config) == nullptr
                         ? "; no scheme stores what the recipe and its options train for"
                         : "");
}

// "nf4 base + lora r16".
void name_base(const ModelSetup& model, std::vector<recipes::LayerConversion>& conversion) {
  if (!model.base) return;
  std::map<std::string, std::string> forms;
  model.model->visit([&](const std::string& name, nn::Module& module) {
    if (const auto* linear = dynamic_cast<nn::Linear*>(&module); linear != nullptr)
      if (std::string form = model.base->form_of(linear->weight()); !form.empty()) forms[name] = std::move(form);
  });
  constexpr std::string_view kDense = "high precision";
  for (recipes::LayerConversion& layer : conversion) {
    const auto form = forms.find(layer.name);
    if (form == forms.end()) continue;
    const bool dense = layer.kernel.starts_with(kDense);
    layer.kernel = fmt::format("{} base{}{}", form->second, dense ? "" : ", ",
                               dense ? layer.kernel.substr(kDense.size()) : layer.kernel);
  }
}

}  // namespace

namespace {

// "new tokens: 320 "<|im_start|>", 321 "<|im_end|>"".
std::string describe_new_tokens(const std::vector<NewToken>& tokens, const Tokenizer& tokenizer) {
  constexpr std::size_t kNamed = 10;
  std::vector<std::string> named;
  for (const NewToken& token : tokens)
    if (named.size() < kNamed)
      named.push_back(fmt::format("{} {}", tokenizer.find_token(token.text).value_or(-1), Json(token.text).dump()));
  const std::string more = tokens.size() > kNamed ? fmt::format(" and {} more", tokens.size() - kNamed) : "";
  return fmt::format("new tokens: {}{}\n", fmt::join(named, ", "), more);
}

// Settings of the run; "" for the model's own.
std::string rope_line(const RunConfig& config, const nn::ModelConfig& m) {
  const auto sets = [&](std::string_view key) { return config.model.fields.find(key) != nullptr; };
  if (!sets("rope_theta") && !sets("rope_scaling") && !sets("rope_parameters")) return "";
  const Json rope = nn::rope_json(m.rope);
  std::string text =
      fmt::format("model: RoPE of this run: theta {:g}, {}", m.rope.theta, rope.at("rope_type").as_string());
  if (m.rope.type != nn::RopeScaling::Type::standard)
    text += fmt::format(" with factor {:g} from {} to {} tokens", m.rope.factor, nn::unscaled_length(m),
                        m.context_length());
  const double reach = m.rope.factor * static_cast<double>(nn::unscaled_length(m));
  using enum nn::RopeScaling::Type;
  if ((m.rope.type == yarn || m.rope.type == linear) && reach < static_cast<double>(m.max_position_embeddings))
    text += fmt::format(", of which its factor covers {:.0f}", reach);
  return text + "\n";
}

std::string model_lines(const RunSession& session, const DataSetup& data) {
  const RunConfig& config = session.config();
  const nn::ModelConfig& m = session.model_config();
  std::string text;
  text += fmt::format(
      "model: {} with {} parameters, {} layers, width {}, {} query and {} key-value heads of {}, vocabulary {}\n",
      m.architecture, format_count(m.parameter_count()), m.num_hidden_layers, m.hidden_size, m.num_attention_heads,
      m.num_key_value_heads, m.block(0).attention.key_dim, format_count(m.vocab_size));
  if (m.experts.count > 0)
    text += fmt::format("model: {} layers of {} experts of width {}, {} for each token: {} parameters active\n",
                        m.sparse_layers(), m.experts.count, m.experts.intermediate_size, m.experts.per_token,
                        format_count(m.active_parameter_count()));
  if (m.mtp.layers > 0) {
    nn::ModelConfig alone = m;
    alone.mtp.layers = 0;
    text += fmt::format(
        "model: {} more layer{} of multi-token prediction with {} of these parameters, weight {:g} in the loss\n",
        m.mtp.layers, m.mtp.layers == 1 ? "" : "s", format_count(m.parameter_count() - alone.parameter_count()),
        config.training.mtp_loss_weight);
  }
  text += rope_line(config, m);
  if (!m.unknown_fields.empty())
    text +=
        fmt::format("model: unknown members of its config.json are ignored: {}\n", fmt::join(m.unknown_fields, ", "));
  if (!config.model.add_tokens.empty() && data.tokenizer != nullptr)
    text += describe_new_tokens(config.model.add_tokens, *data.tokenizer);
  return text;
}

std::string type_line(const RunSession& session) {
  const RunConfig& config = session.config();
  const nn::ParameterOptions& options = session.model().options();
  const bool master = config.training.master_dtype.has_value() && options.dtype != DType::f32;
  const nn::OptimizerEntry& optimizer = nn::find_optimizer(config.optimizer.name);
  return fmt::format("types: parameters {}, gradients {}, optimizer {} with state {}{}{}\n", to_string(options.dtype),
                     to_string(options.grad_dtype), optimizer.name,
                     optimizer.moment_format.empty() ? to_string(config.optimizer.state) : optimizer.moment_format,
                     !master                        ? ""
                     : config.training.master_split ? ", master weights f32, split"
                                                    : ", master weights f32",
                     config.training.ema_decay
                         ? fmt::format(", average of the weights {} (decay {:g})", to_string(config.training.ema_dtype),
                                       *config.training.ema_decay)
                         : "");
}

// Trained parameters, and the precision of each layer.
std::string recipe_lines(const RunSession& session) {
  const ResolvedConfig& resolved = session.resolved();
  const RunConfig& config = session.config();
  const ModelSetup& setup = session.setup();
  nn::CausalLm& model = session.model();
  const nn::ParameterOptions& options = model.options();
  std::string text;
  const std::string recipe =
      resolved.choice()
          ? fmt::format("auto, which is {}: {}", shown_recipe(resolved.choice()->name, to_string(options.dtype)),
                        resolved.choice()->reason)
          : shown_recipe(config.recipe.name, to_string(options.dtype));
  std::vector<recipes::LayerConversion> conversion = setup.conversion;
  measure_saved_inputs(conversion, resolved, options.device);
  name_base(setup, conversion);
  if (setup.adapters) text += describe_adapters(*setup.adapters, setup.config.parameter_count()) + "\n";
  if (!config.training.freeze.empty() || !config.training.train.empty()) text += describe_frozen(model) + "\n";
  text += ParameterGroups(model, config.optimizer).describe(model);
  text += fmt::format("recipe: {}\n{}", recipe, recipes::conversion_report(conversion));
  const recipes::Recipe& chosen = recipes::find_recipe(config.recipe.name);
  if (const std::string path = recipes::describe_float8_path(chosen, config.recipe.emulate, options.device);
      !path.empty())
    text += path + "\n";
  if (setup.scaling) text += setup.scaling->describe() + "\n";
  if (const std::string path = recipes::describe_mxfp8_path(chosen, config.recipe.emulate, options.device);
      !path.empty())
    text += "MXFP8 GEMMs: " + path + "\n";
  return text;
}

std::string batch_lines(const RunSession& session, std::int64_t steps) {
  const RunConfig& config = session.config();
  const nn::ParameterOptions& options = session.model().options();
  const std::int64_t batch = global_batch_size(config), micro = config.training.micro_batch_size;
  std::string text =
      fmt::format("batch: {} sequences of {} tokens in {} micro-batch{} of {} = {} tokens a step, {} steps, seed {}\n",
                  batch, config.data.seq_len, batch / micro, batch == micro ? "" : "es", micro,
                  format_count(batch * config.data.seq_len), format_count(steps), config.training.seed);
  if (config.parallel.ranks > 1) {
    const RunEstimate estimate = estimate_run(session.resolved(), options.device);
    constexpr double kMib = 1 << 20;
    text += fmt::format(
        "processes: {}; each needs {:.1f} MiB at the peak and sends {:.1f} MiB of weights{} and {:.1f} MiB of "
        "gradients "
        "a step\n{}",
        describe_sizes(estimate.mesh), static_cast<double>(estimate.total_bytes) / kMib,
        static_cast<double>(estimate.gather_bytes) / kMib,
        estimate.waited_rows().empty()
            ? ""
            : fmt::format(", {:.1f} MiB of {}", static_cast<double>(estimate.context_bytes) / kMib,
                          estimate.waited_rows()),
        static_cast<double>(estimate.reduce_bytes) / kMib, describe_mesh(estimate.mesh, session.ranks().node_size));
    if (estimate.mesh.pipeline > 1)
      text += fmt::format("stages: {}; stage {} needs most memory and sends {:.1f} MiB of hidden states a step\n",
                          describe_stages(config, session.model_config()), estimate.stage,
                          static_cast<double>(estimate.message_bytes) / kMib);
  }
  const TrainingFlops flops = training_flops(session.setup(), config.data.seq_len);
  text += fmt::format("FLOPs a step: {:.3g}, {}\n", flops.total() * static_cast<double>(batch * config.data.seq_len),
                      shares(flops, options.dtype, recipes::find_recipe(config.recipe.name).capabilities.codes()));
  return text;
}

}  // namespace

std::string start_report(const RunSession& session, const DataSetup& data, const RunModel& run_model,
                         const Json& environment, std::int64_t steps) {
  const RunConfig& config = session.config();
  std::string text = fmt::format("quench {} on {} ({}), {} threads\n", environment.at("quench").as_string(),
                                 environment.at("device").as_string(), environment.at("device_name").as_string(),
                                 environment.at("threads").as_int());
  text += model_lines(session, data) + type_line(session) + recipe_lines(session);
  if (const ObjectiveEntry& objective = objective_of(config); objective.describe != nullptr)
    text += objective.describe(config);
  text += batch_lines(session, steps);
  for (const std::string& line : data.plan) text += "data: " + line + "\n";
  text += "token ids: " + run_model.report + "\n";
  if (config.export_model) text += "export: " + export_line(config) + "\n";
  return text;
}

}  // namespace quench
