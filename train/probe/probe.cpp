#include "train/probe/probe.h"

#include <algorithm>
#include <chrono>

#include "core/memory/allocator.h"
#include "core/number/random.h"
#include "recipes/float8/hardware.h"
#include "train/check/check.h"
#include "train/metrics/step_metrics.h"
#include "train/probe/layer_bench.h"
#include "train/probe/short_model.h"
#include "train/session/data_setup.h"
#include "train/session/run_session.h"

namespace quench {
namespace {

// Limit of micro-batches per step: more do not reduce the share of weight casts noticeably.
constexpr std::int64_t kMostMicroBatches = 4;
// Rounds over all candidates; the minimum counts, since disturbances only add time.
constexpr int kRounds = 2;

// Partial micro-batch: fraction of the time budget for the counted FLOPs (the count is incomplete); minimum tokens for
// a meaningful result; tokens of the initial speed measurement.
constexpr double kShareOfTime = 0.5;
constexpr std::int64_t kLeastTokens = 64;
constexpr std::int64_t kSampleTokens = 128;

TimingOptions layer_timing(Device device) {
  // GEMM autotuning takes about sixty calls.
  if (device.is_cpu()) return {.warm_up = 1, .repetitions = 5, .seconds = 0.2};
  return {.warm_up = 64, .warm_up_seconds = 1.5, .repetitions = 15, .seconds = 0.1};
}

TimingOptions step_timing(Device device) {
  if (device.is_cpu()) return {.warm_up = 1, .repetitions = 3, .seconds = 0.5};
  return {.warm_up = 3, .warm_up_seconds = 0.3, .repetitions = 15, .seconds = 0.4};
}

// Rows of random tokens, one sequence each.
Batch random_batch(const RunConfig& config, std::int64_t vocabulary, Device device) {
  const std::int64_t rows = config.training.micro_batch_size, length = config.data.seq_len;
  Batch batch;
  for (Tensor* tensor : {&batch.input_ids, &batch.labels, &batch.positions})
    *tensor = Tensor::empty_pinned({rows, length}, DType::i32, device);
  const RandomKey key{static_cast<std::uint64_t>(config.training.seed), hash64("probe"), 0};
  const auto token = [&](std::int64_t i) {
    return static_cast<std::int32_t>(
        random_below(key, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(vocabulary)));
  };
  for (std::int64_t i = 0; i < rows * length; ++i) {
    batch.input_ids.data<std::int32_t>()[i] = token(i);
    batch.labels.data<std::int32_t>()[i] = token(i + 1);
    batch.positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i % length);
  }
  for (std::int64_t r = 0; r < rows; ++r) batch.sequences.push_back({r * length, length, r * length, length});
  batch.valid_tokens = rows * length;
  return batch;
}

// First micro-batch of the run with targets; else one without.
Batch first_batch(RunConfig config, const nn::ModelConfig& model, Device device) {
  if (config.data.train.empty()) return {};
  const DataSetup data = open_data(config, model);
  (void)fit_batch(config, *data.train);
  BatchLoader loader(data.train, {config.training.micro_batch_size, global_batch_size(config), 0, 1},
                     {.device = device, .prefetch = 0});
  std::optional<Batch> batch = loader.next();
  return batch ? std::move(*batch) : Batch{};
}

class Probe {
 public:
  Probe(const RunConfig& config, Device device, const ProbeOptions& options)
      : config_(config), device_(device), options_(options), model_(resolve_model_config(config.model)) {
    QUENCH_CHECK_AS(ErrorCode::unsupported, model_.experts.count == 0,
                    "recipes are compared on dense layers, but {} has experts: name a recipe in recipe.name",
                    model_.architecture);
    result_.device = device;
    result_.device_name = backend(device.type).device_name(device);
    config_.recipe.emulate = config.recipe.emulate || !recipes::has_float8_gemms(device);
    result_.emulated = config_.recipe.emulate;
    result_.dtype = config.training.dtype;
    result_.tokens = tokens();
    result_.real_weights = loads_weights(config);
    result_.bound = options.bound;
    result_.sampled = !options.whole_model && !result_.real_weights;
    micro_batches_ = std::min(accumulation_steps(config, 1), kMostMicroBatches);
  }

  ProbeResult run() {
    find_conversions();
    fit_into_time();
    result_.measured_tokens = tokens();
    batch_ = first_batch(config_, model_, device_);
    result_.real_data = batch_.valid_tokens > 0;
    if (!result_.real_data) batch_ = random_batch(config_, model_.vocab_size, device_);
    time_layers();
    measure_errors();
    time_candidates();
    result_.choice = choose(result_.candidates);
    if (result_.emulated) result_.choice = {"bf16", {}, "float8 is emulated here, which is slower"};
    return std::move(result_);
  }

 private:
  void say(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  [[nodiscard]] std::int64_t tokens() const { return config_.training.micro_batch_size * config_.data.seq_len; }

  // Truncates the micro-batch to the time budget.
  void fit_into_time() {
    if (!options_.seconds || !device_.is_cpu()) return;
    const double rate = slowest_rate();
    const auto fitting = [&] { return kShareOfTime * *options_.seconds * rate / flops_per_token(); };
    if (fitting() >= static_cast<double>(tokens())) return;
    micro_batches_ = 1;
    config_.training.global_batch_size.reset();
    result_.sampled = !result_.real_weights;
    const auto most = std::max<std::int64_t>(kLeastTokens, static_cast<std::int64_t>(fitting()));
    config_.data.seq_len = std::min(config_.data.seq_len, most);
    config_.training.micro_batch_size =
        std::clamp<std::int64_t>(most / config_.data.seq_len, 1, config_.training.micro_batch_size);
    say(fmt::format("measuring {} of a micro-batch's {} tokens, to end within about {:.0f} seconds (--seconds)",
                    format_count(tokens()), format_count(result_.tokens), *options_.seconds));
  }

  // Approximate FLOPs per token of time_layers, measure_errors and time_candidates.
  [[nodiscard]] double flops_per_token() const {
    double layer = 0;
    for (const LayerTimes& times : result_.layers) layer += layer_flops(times.kind);
    const auto recipes = static_cast<double>(probed_recipes(config_.training.batch_invariant).size());
    const auto calls = [](const TimingOptions& timing) { return timing.warm_up + 4.0; };
    const auto micro = static_cast<double>(micro_batches_);
    const double alone = calls(layer_timing(device_)) * (1 + recipes) * layer * micro;
    const nn::ModelConfig& shape = result_.sampled ? cut_ : model_;
    const auto head = [&](const nn::ModelConfig& model) {
      return 6.0 * static_cast<double>(model.hidden_size) * static_cast<double>(model.vocab_size);
    };
    // Forward, recompute and backward, plus high precision and each recipe.
    const double errors =
        static_cast<double>(shape.num_hidden_layers) * layer * (4.0 / 3 + 1 + recipes) + 2 * head(shape);
    const double step = static_cast<double>(cut_.num_hidden_layers) * layer + head(cut_);
    const double steps = kRounds * (1 + 2 * recipes) * calls(step_timing(device_)) * step * micro;
    return alone + errors + steps;
  }

  [[nodiscard]] static double layer_flops(const LayerKind& kind) {
    return 6.0 * static_cast<double>(kind.in_features) * static_cast<double>(kind.out_features);
  }

  // FLOP/s of one layer kind under the first recipe.
  [[nodiscard]] double slowest_rate() const {
    const LayerKind& kind = result_.layers.back().kind;
    const std::int64_t sample = std::min(tokens(), kSampleTokens);
    LayerBench bench(kind, layer_work(sample, 1), device_);
    const nn::LinearInfo info{kind.name, kind.in_features, kind.out_features, kind.has_bias, device_};
    const recipes::LinearPlan plan = recipes::find_recipe(probed_recipes(config_.training.batch_invariant).front())
                                         .plan(info, recipe_options(config_, device_));
    const nn::LinearKernel& kernel = plan.kernel ? *plan.kernel : *nn::high_precision_linear_kernel();
    const double milliseconds = bench.milliseconds(kernel, {.warm_up = 1, .repetitions = 3, .seconds = 0.1});
    return layer_flops(kind) * static_cast<double>(sample) / std::max(milliseconds * 1e-3, 1e-9);
  }

  [[nodiscard]] LayerWork layer_work(std::int64_t tokens_of_pass, std::int64_t micro_batches) const {
    const nn::ParameterOptions parameters = parameter_options(config_, device_);
    return {.tokens = tokens_of_pass,
            .micro_batches = micro_batches,
            .dtype = parameters.dtype,
            .grad_dtype = parameters.grad_dtype,
            .eps = model_.rms_norm_eps,
            .recompute = recompute_level(config_.training.activation_checkpoint)};
  }

  // Runs the model conversion on the meta device.
  void find_conversions() {
    for (const LayerKind& kind : layer_kinds(model_)) result_.layers.push_back({kind, 0, {}});
    for (const std::string& recipe : probed_recipes(config_.training.batch_invariant)) {
      RunConfig config = config_;
      config.recipe.name = recipe;
      std::vector<recipes::LayerConversion> conversion;
      std::string refused;  // by the device
      try {
        conversion =
            RunSession(ResolvedConfig(config), {.device = {DeviceType::meta, 0}, .target = device_}).setup().conversion;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
        refused = error.what();
      }
      for (LayerTimes& layer : result_.layers) {
        RecipeTime time{recipe, 0, refused};
        bool converted = false;
        for (const recipes::LayerConversion& row : conversion) {
          if (last_component(row.name) != layer.kind.name) continue;
          if (row.kernel == recipe) {
            converted = true;
            converted_[recipe].push_back(row.name);
          } else {
            time.skipped_because = row.skipped_because;
          }
        }
        if (converted) time.skipped_because.clear();
        layer.recipes.push_back(std::move(time));
      }
    }
    Allocator::of({DeviceType::meta, 0}).trim();
  }

  void time_layers() {
    for (LayerTimes& layer : result_.layers) {
      say(fmt::format("timing {} ({} -> {})", layer.kind.name, layer.kind.in_features, layer.kind.out_features));
      LayerBench bench(layer.kind, layer_work(result_.measured_tokens, micro_batches_), device_);
      layer.high_precision = bench.milliseconds(*nn::high_precision_linear_kernel(), layer_timing(device_));
      const nn::LinearInfo info{layer.kind.name, layer.kind.in_features, layer.kind.out_features, layer.kind.has_bias,
                                device_};
      for (RecipeTime& time : layer.recipes) {
        if (!time.skipped_because.empty()) continue;
        const recipes::LinearPlan plan = recipes::find_recipe(time.recipe).plan(info, recipe_options(config_, device_));
        time.milliseconds = bench.milliseconds(*plan.kernel, layer_timing(device_));
      }
    }
  }

  void measure_errors() {
    say(fmt::format("errors on one micro-batch of {}", result_.real_data ? "the run" : "random tokens"));
    ConvertedLayers layers = converted_;
    if (result_.sampled) {  // one layer represents its kind
      layers.clear();
      for (const LayerTimes& layer : result_.layers)
        for (const RecipeTime& time : layer.recipes)
          if (time.skipped_because.empty()) layers[time.recipe].push_back(layer.kind.name);
    }
    const nn::ModelConfig& shape = result_.sampled ? cut_ : model_;
    nn::CausalLm model(shape, parameter_options(config_, device_));
    fill_model(model, config_);
    result_.errors = measure_layer_errors(model, result_.sampled ? short_batch() : batch_,
                                          loss_options(config_, shape.vocab_size, device_), layers,
                                          recipe_options(config_, device_));
  }

  void time_candidates() {
    result_.candidates = make_candidates(probed_recipes(config_.training.batch_invariant), result_.layers,
                                         result_.errors, options_.bound, result_.sampled);
    result_.short_layers = cut_.num_hidden_layers;
    for (int round = 0; round < kRounds; ++round) {
      for (Candidate& candidate : result_.candidates) {
        if (round == 0) say(fmt::format("timing {} layers in {}", result_.short_layers, candidate.recipe));
        const double milliseconds =
            short_model().milliseconds(candidate.recipe, short_filter(candidate), step_timing(device_));
        if (round == 0 || milliseconds < candidate.milliseconds) candidate.milliseconds = milliseconds;
      }
    }
  }

  // Candidate's filter plus whole-kind patterns of the run's filter; single-layer names do not apply to the short
  // model.
  [[nodiscard]] recipes::LayerFilter short_filter(const Candidate& candidate) const {
    recipes::LayerFilter filter{.include = {}, .exclude = {"lm_head"}};
    for (const LayerTimes& layer : result_.layers) {
      const RecipeTime* time = layer.find(candidate.recipe);
      const bool skipped = time != nullptr && !time->skipped_because.empty();
      if (skipped || std::ranges::find(candidate.exclude, layer.kind.pattern()) != candidate.exclude.end())
        filter.exclude.push_back(layer.kind.pattern());
    }
    return filter;
  }

  Batch short_batch() { return cut_vocabulary(batch_, cut_.vocab_size, device_); }
  ShortModel& short_model() {
    if (!short_model_) {
      short_model_ = std::make_unique<ShortModel>(config_, cut_, short_batch(), micro_batches_, device_);
    }
    return *short_model_;
  }

  RunConfig config_;
  Device device_;
  ProbeOptions options_;
  nn::ModelConfig model_;
  nn::ModelConfig cut_ = cut_model(model_, {});
  Batch batch_;
  std::int64_t micro_batches_ = 1;
  ConvertedLayers converted_;
  std::unique_ptr<ShortModel> short_model_;
  ProbeResult result_;
};

}  // namespace

std::vector<std::string> probed_recipes(bool batch_invariant) {
  std::vector<std::string> names;
  for (const recipes::Recipe& recipe : recipes::recipe_table())
    if (!recipe.capabilities.float8.empty() && recipe.capabilities.float8_kind != recipes::Float8GemmKind::int8 &&
        !(batch_invariant && recipe.capabilities.mixes_rows()))
      names.emplace_back(recipe.name);
  return names;
}

ProbeResult run_probe(const RunConfig& config, Device device, const ProbeOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  // Releases cached memory, also after an error.
  struct Trim {
    Device device;
    ~Trim() {
      for (const Device where : {device, Device{}}) {
        Allocator::of(where).trim();
        Allocator::of(where).reset_peak();
      }
    }
  } const trim{device};
  ProbeResult result = Probe(config, device, options).run();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace quench
