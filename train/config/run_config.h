#pragma once
// What one training run is: plain data, one struct per section of the JSON file, defaults included.
//
// The field table (train/config/field_table.h) binds every member to its key, range, help text and resume policy; it
// is the only place that knows key names. A config obtained from load_run_config has passed every check of
// train/check/check.h and has its derived values filled in (train/check/load.h).

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "core/number/dtype.h"
#include "data/sampling/long_documents.h"
#include "data/text/policies.h"
#include "nn/optim/lr_schedule.h"
#include "train/checkpoint/on_save_error.h"
#include "train/config/lora_section.h"
#include "train/config/parallel_section.h"
#include "train/config/quantization_section.h"
#include "train/metrics/console_sink.h"
#include "train/step/loss_guard.h"

namespace quench {

struct RunSection {
  std::string name;    // derived: the config's file name without extension
  std::string folder;  // derived: runs/<name>

  friend bool operator==(const RunSection&, const RunSection&) = default;
};

struct ModelSection {
  enum class Init { automatic, random, load };

  std::string preset;            // name of an embedded architecture, or empty
  std::string path;              // Hugging Face model folder, or empty
  Init init = Init::automatic;   // derived: load where a path is given, else random
  Json fields = Json::object();  // Hugging Face config.json fields given inline; they win over preset

  friend bool operator==(const ModelSection&, const ModelSection&) = default;
};

// One entry of data.train or data.validation. `path` may be a glob pattern; expand_sources() resolves it.
struct DataSource {
  std::string path;
  double weight = 1.0;  // share of the samples of a mix, before normalisation

  friend bool operator==(const DataSource&, const DataSource&) = default;
};

struct DataSection {
  std::vector<DataSource> train;
  std::vector<DataSource> validation;
  std::int64_t seq_len = 2048;  // tokens of one sequence
  std::string format = "auto";  // one of data_format_names()
  bool packing = true;
  bool multipack = false;  // rows of whole documents, chosen by length
  LongDocuments on_long = LongDocuments::split;
  std::string tokenizer;  // tokenizer file or folder, "bytes", or empty: that of model.path, or of the shards
  EosPolicy eos = EosPolicy::automatic;
  SpecialText special_text = SpecialText::automatic;
  std::string text_field = "text";
  std::map<std::string, std::string> columns;  // what a record is read as -> its column (data/text/record_columns.h)
  std::string chat_template = "auto";          // one of chat_template_names(), or the path of a .jinja file
  std::string chat_date;                       // "2024-07-26", or empty: templates may not ask for the date
  Json::Object chat_template_kwargs;           // arguments of the template, where a record says nothing else
  TrainOn train_on = TrainOn::assistant;
  BadRecord on_bad_record = BadRecord::error;
  std::int64_t prefetch = 2;  // batches
  bool shuffle = true;
  std::string cache;  // derived: <run.folder>/cache; folder of tokenized text

  friend bool operator==(const DataSection&, const DataSection&) = default;
};

struct TrainingSection {
  enum class ActivationCheckpoint { none, selective, full };

  // At least one is set; the run ends at whichever comes first.
  std::optional<std::int64_t> steps;
  std::optional<double> epochs;
  std::int64_t micro_batch_size = 1;              // sequences per forward pass on one rank
  std::optional<std::int64_t> global_batch_size;  // sequences per optimizer step over all ranks; unset: no accumulation
  double max_norm = 1.0;                          // global gradient norm limit; 0 turns clipping off
  std::int64_t seed = 42;
  DType dtype = DType::bf16;                       // f32 or bf16: parameters and activations of the forward pass
  std::optional<DType> master_dtype = DType::f32;  // f32, or none: the optimizer updates the bf16 parameters
  std::optional<DType> grad_dtype;                 // f32 or bf16 accumulation; unset: chosen by the trainer
  ActivationCheckpoint activation_checkpoint = ActivationCheckpoint::none;
  bool deterministic = false;
  NonfinitePolicy on_nonfinite = NonfinitePolicy::stop;
  std::int64_t max_consecutive_skips = 10;
  std::int64_t loss_chunk_size = 0;   // tokens whose logits exist at once; 0: chosen by the trainer
  std::optional<DType> logits_dtype;  // f32 or bf16, of the loss while training in bf16; unset: chosen by the trainer
  std::int64_t offload_layers = 0;    // layers whose largest activation waits in host memory for the backward pass
  // Layers that make the same activation again in the backward pass, under selective recompute.
  std::int64_t recompute_mlp_layers = 0;
  std::int64_t threads = 0;  // CPU threads of one rank; 0: all that the process may use
  // Terms of the loss of models with experts (core/ops/experts/router.h), means over layers and tokens.
  std::optional<double> router_balance_loss;  // unset: what the model's config.json asks for
  double router_z_loss = 0;
  // Step of the bias that evens out the load of experts without a loss; unset: 0.001 where the model has one.
  std::optional<double> router_bias_speed;

  friend bool operator==(const TrainingSection&, const TrainingSection&) = default;
};

struct OptimizerSection {
  std::string name = "adamw";  // one of nn::optimizer_table()
  double lr = 3e-4;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  DType state = DType::f32;         // f32 or bf16 moments
  bool stochastic_rounding = true;  // where bf16 parameters (master_dtype none) or bf16 moments are written
  double offload_ratio = 0;         // share of moments and master weights that waits in host memory
  std::vector<std::string> decay_exclude = {"*norm.weight", "*.bias"};  // globs over parameter names
  std::optional<double> momentum;                                       // unset: the optimizer's own
  std::optional<bool> nesterov;
  std::vector<std::string> muon_exclude = {"*embed_tokens*", "lm_head*"};  // matrices that muon leaves to AdamW

  friend bool operator==(const OptimizerSection&, const OptimizerSection&) = default;
};

// The schedule itself is nn/optim/lr_schedule.h; lr_schedule_options() below makes its options.
struct LrScheduleSection {
  std::string name = "cosine";  // one of lr_schedules()
  std::int64_t warmup_steps = 0;
  std::optional<std::int64_t> decay_steps;
  std::optional<double> decay_ratio;  // decay_steps as a share of all steps; at most one of the two is set
  LrDecayShape decay_shape = LrDecayShape::linear;  // of schedules without a shape of their own
  double min_lr_ratio = 0.1;                        // final learning rate over peak learning rate

  friend bool operator==(const LrScheduleSection&, const LrScheduleSection&) = default;
};

struct RecipeSection {
  struct Filter {
    std::vector<std::string> include;  // globs over module names; empty: every linear layer
    std::vector<std::string> exclude = {"lm_head"};
    std::int64_t skip_first_layers = 0;  // decoder layers that stay in high precision
    std::int64_t skip_last_layers = 0;

    friend bool operator==(const Filter&, const Filter&) = default;
  };

  // How the float8 codes of output gradients are chosen.
  enum class GradientRounding { nearest, stochastic };

  std::string name = "bf16";
  Filter filter;
  bool emulate = false;              // f32 products of the dequantized operands, on any device
  bool pad = false;                  // layers whose sizes the tensor cores do not take
  std::optional<bool> keep_weights;  // quantized weights between micro-batches; absent: several small ones
  std::vector<std::string> fast_accumulation = {"forward"};
  std::vector<std::string> high_precision_gemms;
  GradientRounding gradient_rounding = GradientRounding::nearest;
  std::string mx_scale = "rceil";  // a name of MxScaleMode
  double high_precision_tail = 0;  // share of the steps, at the end, that run without the recipe
  // Of integer weights (quantization-aware training); absent: the recipe's own.
  std::optional<std::int64_t> weight_bits;
  std::optional<std::int64_t> group_size;
  bool asymmetric_weights = false;
  bool learned_scales = false;
  double scale_lr = 1e-2;  // of learned scales: peak relative rate
  // Of the embedding table; absent bits: it stays in high precision.
  std::optional<std::int64_t> embedding_bits;
  std::optional<std::int64_t> embedding_group_size;
  std::int64_t start_step = 0;            // steps at the beginning that run without the recipe
  std::optional<std::int64_t> stop_step;  // steps after which the rest runs without it; absent: none

  friend bool operator==(const RecipeSection&, const RecipeSection&) = default;
};

// checkpoint.resume: one of three words, the number of a saved step, or the folder of one checkpoint.
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
  std::int64_t interval = 500;   // steps; 0: only the final one and those that a signal asks for
  std::int64_t keep_latest = 3;  // 0: all
  bool async = true;
  ResumeFrom resume;
  bool save_final = true;
  OnSaveError on_save_error = OnSaveError::keep_training;
  bool verify = true;                      // check stored hashes when loading
  std::vector<std::string> allow_changes;  // keys that may differ from the checkpoint's config (config_diff.h)

  friend bool operator==(const CheckpointSection&, const CheckpointSection&) = default;
};

struct MetricsSection {
  std::int64_t log_every = 10;      // steps
  std::int64_t health_every = 100;  // steps; 0: never
  std::int64_t profile_step = 0;    // the step whose ops are timed one by one; 0: none
  bool tensorboard = true;
  bool jsonl = true;
  ProgressDisplay progress = ProgressDisplay::automatic;
  std::string folder;  // derived: <run.folder>/metrics
  std::string log_level = "info";

  friend bool operator==(const MetricsSection&, const MetricsSection&) = default;
};

struct EvaluationSection {
  std::int64_t interval = 500;                   // steps; derived: 0 (off) where data.validation is empty
  std::int64_t steps = 50;                       // batches; 0: the whole validation set
  std::optional<std::int64_t> micro_batch_size;  // unset: training.micro_batch_size
  std::vector<std::string> prompts;              // texts that the model continues at every evaluation
  std::int64_t sample_tokens = 64;               // new tokens for each, at most
  double sample_temperature = 0;                 // 0: greedy

  friend bool operator==(const EvaluationSection&, const EvaluationSection&) = default;
};

struct ExportSection {
  std::string format;      // derived: one of codes where there is a scheme for them, else the first of export_formats()
  std::string folder;      // derived: <run.folder>/export
  bool overwrite = false;  // where other files stand: replace those of the same names, leave the rest
  std::string dtype;       // of what is not stored as codes, and of scales: f32, bf16 or f16; derived: training.dtype
  std::string reader;      // a name of folder_readers() that the folder is for; empty: any
  // Its scheme is derived: what the recipe simulates, where the format stores that.
  QuantizationSection quantization;
  std::string sparsity;  // a name of sparsity_choices() that weights are pruned to before; empty: none

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
  std::optional<LoraSection> lora;            // all of the model is trained without it
  std::optional<ExportSection> export_model;  // section "export"

  friend bool operator==(const RunConfig&, const RunConfig&) = default;
};

// The schedule of a run of `total_steps` optimizer steps (training.steps, or what training.epochs amounts to).
[[nodiscard]] LrScheduleOptions lr_schedule_options(const RunConfig& config, std::int64_t total_steps);

}  // namespace quench
