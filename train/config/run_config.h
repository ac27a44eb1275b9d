#pragma once
// Configuration of a training run: plain data with defaults, one struct per JSON section.
//
// The field table (train/config/fields/field.h) binds members to key, range, help text and resume policy. A config from
// load_run_config has passed all checks (train/check/check.h) and has derived values.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/number/dtype.h"
#include "data/sampling/long_documents.h"
#include "data/text/policies.h"
#include "data/tokenizer/tokenizer.h"
#include "nn/optim/lr_schedule.h"
#include "train/checkpoint/on_save_error.h"
#include "train/config/objective_sections.h"
#include "train/config/sections/lora_section.h"
#include "train/config/sections/new_tokens.h"
#include "train/config/sections/parallel_section.h"
#include "train/config/sections/quantization_section.h"
#include "train/metrics/console_sink.h"
#include "train/step/loss_guard.h"

namespace quench {

struct RunSection {
  std::string name;                  // derived: file name without extension
  std::string folder;                // derived: runs/<name>
  std::vector<std::string> plugins;  // absolute, with those of --plugin

  friend bool operator==(const RunSection&, const RunSection&) = default;
};

struct ModelSection {
  enum class Init { automatic, random, load };

  std::string preset;            // embedded architecture, or empty
  std::string path;              // Hugging Face folder, or empty
  Init init = Init::automatic;   // derived: load if path is set, else random
  Json fields = Json::object();  // inline config.json fields; override the preset
  // Learned by the tokenizer; the vocabulary grows if it has no spare rows (train/check/run_tokenizer.h).
  std::vector<NewToken> add_tokens;
  NewTokenInit new_token_init = NewTokenInit::mean;
  std::optional<std::int64_t> pad_vocab_to_multiple_of;  // divisor of the size of a grown vocabulary

  friend bool operator==(const ModelSection&, const ModelSection&) = default;
};

// `path`: file, folder or glob pattern.
struct DataSource {
  std::string path;
  // Unnormalized. Without any, the sources are concatenated; next to others, an unset one is 1.
  std::optional<double> weight{};

  friend bool operator==(const DataSource&, const DataSource&) = default;
};

struct DataSection {
  std::vector<DataSource> train;
  std::vector<DataSource> validation;
  std::optional<double> validation_split;  // held out of `train`: fraction below 1, else number of records
  std::int64_t seq_len = 2048;             // tokens
  std::string format = "auto";             // one of data_format_names()
  bool packing = true;
  bool multipack = false;  // whole documents packed into rows by length
  LongDocuments on_long = LongDocuments::split;
  std::string tokenizer;  // file or folder, "bytes", or empty: of model.path or the shards
  EosPolicy eos = EosPolicy::automatic;
  SpecialText special_text = SpecialText::automatic;
  std::string text_field = "text";
  std::map<std::string, std::string> columns;  // record field -> column (data/text/record_columns.h)
  std::string chat_template = "auto";          // one of chat_template_names(), or a .jinja file
  std::string chat_date;                       // "2024-07-26"; empty: none
  Json::Object chat_template_kwargs;           // defaults; records override
  TrainOn train_on = TrainOn::assistant;
  BadRecord on_bad_record = BadRecord::error;
  std::int64_t prefetch = 2;  // batches
  bool shuffle = true;
  std::string cache;  // derived: <run.folder>/cache, for tokenized text

  [[nodiscard]] bool has_validation() const { return !validation.empty() || validation_split.has_value(); }

  friend bool operator==(const DataSection&, const DataSection&) = default;
};

struct TrainingSection {
  enum class ActivationCheckpoint { none, selective, full };

  // At least one is set; the first limit ends the run.
  std::optional<std::int64_t> steps;
  std::optional<double> epochs;
  std::int64_t micro_batch_size = 1;              // sequences, per rank
  std::optional<std::int64_t> global_batch_size;  // sequences per optimizer step, all ranks; unset: no accumulation
  double max_norm = 1.0;                          // gradient norm limit; 0: none
  std::int64_t seed = 42;
  // Globs over parameter names: frozen, and the only trained ones (empty: all). `freeze` wins.
  std::vector<std::string> freeze;
  std::vector<std::string> train;
  DType dtype = DType::bf16;                       // f32 or bf16: parameters, activations
  std::optional<DType> master_dtype = DType::f32;  // f32; unset: bf16 parameters are updated
  bool master_split = false;                       // 16 bits beyond the bf16 parameters (core/number/split_f32.h)
  std::optional<double> ema_decay;                 // average of weights; unset: none
  DType ema_dtype = DType::f32;                    // dtype of the average: f32 or bf16
  std::optional<DType> grad_dtype;                 // f32 or bf16; unset: automatic
  ActivationCheckpoint activation_checkpoint = ActivationCheckpoint::none;
  bool deterministic = false;
  bool batch_invariant = false;
  NonfinitePolicy on_nonfinite = NonfinitePolicy::stop;
  std::int64_t max_consecutive_skips = 10;
  std::int64_t loss_chunk_size = 0;   // tokens; 0: automatic
  std::optional<DType> logits_dtype;  // f32 or bf16, in bf16 training; unset: automatic
  std::int64_t offload_layers = 0;    // largest saved activation offloaded to host memory
  // The same activation recomputed, under selective recompute.
  std::int64_t recompute_mlp_layers = 0;
  std::int64_t keep_attention_layers = 0;  // results of attention saved under full recompute
  std::int64_t mlp_tile_tokens = 0;        // tokens of a tile of the feed-forward part; 0: whole
  std::int64_t threads = 0;                // per rank; 0: all available to the process
  std::string memory_limit;                // limit of each GPU (core/memory/memory_limit.h); empty: none
  // MoE auxiliary losses (core/ops/experts/router.h), means over layers and tokens.
  std::optional<double> router_balance_loss;  // unset: from config.json
  double router_z_loss = 0;
  double mtp_loss_weight = 0;  // 0: no MTP layers
  // Update rate of the router's expert bias; unset: 0.001 if the model has one.
  std::optional<double> router_bias_speed;

  friend bool operator==(const TrainingSection&, const TrainingSection&) = default;
};

// Settings of the parameters that `match` names first. At least one is set, at most one of lr and lr_scale.
struct ParameterGroup {
  std::vector<std::string> match;      // globs over parameter names
  std::optional<double> lr_scale;      // factor of the scheduled learning rate
  std::optional<double> lr;            // peak
  std::optional<double> weight_decay;  // also of parameters in decay_exclude

  friend bool operator==(const ParameterGroup&, const ParameterGroup&) = default;
};

struct OptimizerSection {
  std::string name = "adamw";  // one of nn::optimizer_table()
  double lr = 3e-4;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  DType state = DType::f32;         // moments: f32 or bf16
  bool stochastic_rounding = true;  // on writes of bf16 parameters (no master weights) and moments
  double offload_ratio = 0;         // fraction of moments and master weights in host memory
  bool offload_streamed = false;    // they stay there during the update
  bool update_in_backward = false;  // weights of a layer are updated once their gradients are complete
  std::vector<std::string> decay_exclude = {"*norm.weight", "*.bias"};  // globs over parameter names
  std::vector<ParameterGroup> groups;
  std::optional<double> momentum;  // unset: the optimizer's default
  std::optional<bool> nesterov;
  std::vector<std::string> muon_exclude = {"*embed_tokens*", "lm_head*"};  // matrices under AdamW

  friend bool operator==(const OptimizerSection&, const OptimizerSection&) = default;
};

// nn/optim/lr_schedule.h; lr_schedule_options() below.
struct LrScheduleSection {
  std::string name = "cosine";  // one of lr_schedules()
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> decay_steps;
  std::optional<double> decay_ratio;                // fraction of all steps; excludes decay_steps
  LrDecayShape decay_shape = LrDecayShape::linear;  // for schedules without a fixed shape
  double min_lr_ratio = 0.1;                        // final / peak

  friend bool operator==(const LrScheduleSection&, const LrScheduleSection&) = default;
};

struct RecipeSection {
  struct Filter {
    std::vector<std::string> include;                 // globs over module names; empty: all linear layers
    std::optional<std::vector<std::string>> exclude;  // unset: recipes::default_exclusions()
    std::int64_t skip_first_layers = 0;               // decoder layers
    std::int64_t skip_last_layers = 0;

    friend bool operator==(const Filter&, const Filter&) = default;
  };

  // Rounding of output gradients to float8.
  enum class GradientRounding { nearest, stochastic };
  // Scales of x and of output gradients from their own amax, or from earlier steps'.
  enum class Scaling { dynamic, delayed };

  std::string name = "bf16";
  Filter filter;
  bool emulate = false;              // f32 GEMMs of dequantized operands, any device
  bool pad = false;                  // layer sizes not supported by tensor cores
  std::optional<bool> keep_weights;  // cache quantized weights; unset: for several small micro-batches
  std::vector<std::string> fast_accumulation = {"forward"};
  std::vector<std::string> high_precision_gemms;
  GradientRounding gradient_rounding = GradientRounding::nearest;
  Scaling scaling = Scaling::dynamic;
  std::int64_t amax_history = 16;  // steps, of delayed scaling
  std::int64_t amax_margin = 0;    // powers of two, of delayed scaling
  std::string mx_scale = "rceil";  // name of an MxScaleMode
  double high_precision_tail = 0;  // last fraction of steps
  // QAT; unset: the recipe's default.
  std::optional<std::int64_t> weight_bits;
  std::optional<std::int64_t> group_size;
  bool asymmetric_weights = false;
  std::string weight_grid = "int";  // name of a WeightGrid
  std::string scale_dtype;          // empty: training.dtype
  bool learned_scales = false;
  std::string gguf_scheme = "q4_k_m";  // recipe qat_gguf
  std::vector<std::string> rules;      // "PATTERN=SCHEME", of layers that are trained for another scheme
  double scale_lr = 1e-2;              // peak, relative
  // Without bits: high precision.
  std::optional<std::int64_t> embedding_bits;
  std::optional<std::int64_t> embedding_group_size;
  std::int64_t start_step = 0;            // first steps without the recipe
  std::optional<std::int64_t> stop_step;  // last step with the recipe; unset: none

  friend bool operator==(const RecipeSection&, const RecipeSection&) = default;
};

// One of three words, a saved step number, or a checkpoint folder.
struct ResumeFrom {
  enum class Mode { automatic, never, must, step, path };

  Mode mode = Mode::automatic;
  std::int64_t step = 0;  // Mode::step
  std::string path;       // Mode::path

  friend bool operator==(const ResumeFrom&, const ResumeFrom&) = default;
};

struct CheckpointSection {
  bool enable = true;
  std::string folder;            // derived: <run.folder>/checkpoints
  std::int64_t interval = 500;   // steps; 0: only final and on signals
  std::int64_t keep_latest = 3;  // 0: all
  bool keep_best = false;        // save and keep the step of the best validation
  bool async = true;
  ResumeFrom resume;
  bool save_final = true;
  OnSaveError on_save_error = OnSaveError::keep_training;
  bool verify = true;                      // hashes, on load
  std::string remote;                      // s3://BUCKET/PREFIX; empty: none
  std::int64_t remote_wait = 600;          // seconds, at the end
  std::vector<std::string> allow_changes;  // keys that may differ from the checkpoint's config (config_diff.h)

  friend bool operator==(const CheckpointSection&, const CheckpointSection&) = default;
};

// First steps of a run, each recorded whatever metrics.log_every.
inline constexpr std::int64_t kFirstLoggedSteps = 10;

struct MetricsSection {
  std::int64_t log_every = 10;      // steps
  std::int64_t health_every = 100;  // steps; 0: never
  std::int64_t profile_step = 0;    // per-op timing; 0: none
  bool tensorboard = true;
  bool jsonl = true;
  ProgressDisplay progress = ProgressDisplay::automatic;
  std::string folder;  // derived: <run.folder>/metrics
  std::string log_level = "info";

  friend bool operator==(const MetricsSection&, const MetricsSection&) = default;
};

struct EvaluationSection {
  // Values of train/evaluation/validation.h; the lowest is the best.
  struct EarlyStopping {
    std::string metric = "loss";
    std::int64_t patience = 0;  // evaluations; 0: off
    double min_delta = 0;       // least improvement that counts for patience

    friend bool operator==(const EarlyStopping&, const EarlyStopping&) = default;
  };

  std::int64_t interval = 500;                   // steps; derived: 0 (off) without validation data
  std::int64_t steps = 50;                       // batches; 0: all
  std::optional<std::int64_t> micro_batch_size;  // unset: training.micro_batch_size
  std::vector<std::string> prompts;              // completed at every evaluation
  bool chat_prompts = false;                     // each is a user's message, rendered by the chat template
  std::int64_t sample_tokens = 64;               // per prompt, at most
  double sample_temperature = 0;                 // 0: greedy
  EarlyStopping early_stopping;

  friend bool operator==(const EvaluationSection&, const EvaluationSection&) = default;
};

// Value of export.weights for the average of training.ema_decay.
inline constexpr std::string_view kAveragedWeights = "ema";

struct ExportSection {
  std::string format;             // derived: a quantized format for a given scheme, else the first of export_formats()
  std::string folder;             // derived: <run.folder>/export
  bool overwrite = false;         // replace files of the same names in a mixed folder
  std::string weights = "final";  // or kAveragedWeights
  std::string dtype;              // unquantized tensors and scales: f32, bf16, f16; derived: training.dtype
  std::string reader;             // name in folder_readers(); empty: any
  // Scheme: derived from the recipe's, if the format supports it.
  QuantizationSection quantization;
  std::string sparsity;  // name in sparsity_choices(); empty: none

  friend bool operator==(const ExportSection&, const ExportSection&) = default;
};

struct RunConfig {
  RunSection run;
  ModelSection model;
  DataSection data;
  TrainingSection training;
  OptimizerSection optimizer;
  LrScheduleSection lr_schedule;
  RecipeSection recipe;
  ParallelSection parallel;
  CheckpointSection checkpoint;
  MetricsSection metrics;
  EvaluationSection evaluation;
  std::optional<LoraSection> lora;            // unset: full training
  ObjectiveSections objectives;               // none: next-token cross-entropy
  std::optional<ExportSection> export_model;  // "export"

  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

// `total_steps`: optimizer steps, by training.steps or training.epochs.
[[nodiscard]] LrScheduleOptions lr_schedule_options(const RunConfig& config, std::int64_t total_steps);

}  // namespace quench
