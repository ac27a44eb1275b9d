#include <algorithm>
#include <map>

#include "train/config/field.h"
#include "train/config/field_builder.h"
#include "train/config/nearest.h"

namespace quench {
namespace {

struct SectionInfo {
  std::string_view name;
  std::string_view help;
};

constexpr SectionInfo kSections[] = {
    {"run", "The run as a whole."},
    {"model", "The model: exactly one of preset, path, or the fields of a Hugging Face config.json written here."},
    {"data", "What the model reads."},
    {"training", "Steps, batches, precision, safety."},
    {"optimizer", "How gradients change parameters."},
    {"lr_schedule", "How the learning rate changes over the run."},
    {"recipe", "Precision of the linear layers."},
    {"lora", "Low-rank adapters: train these instead of the weights. Off unless present."},
    {"parallel", "How the run is spread over processes."},
    {"checkpoint", "Saving and resuming."},
    {"metrics", "What is printed and recorded."},
    {"evaluation", "Loss on held-out data during training."},
    {"export", "A model folder written at the end. Off unless present."},
};

// Keys as torchtitan, torchtune, axolotl, Hugging Face's TrainingArguments, nanoGPT and llmq call them.
const std::map<std::string_view, std::string_view>& foreign_names() {
  static const std::map<std::string_view, std::string_view> names = {
      {"learning_rate", "optimizer.lr"},
      {"max_lr", "optimizer.lr"},
      {"beta1", "optimizer.betas"},
      {"beta2", "optimizer.betas"},
      {"adam_beta1", "optimizer.betas"},
      {"adam_beta2", "optimizer.betas"},
      {"adam_epsilon", "optimizer.eps"},
      {"opt_m_dtype", "optimizer.state"},
      {"opt_v_dtype", "optimizer.state"},
      {"batch_size", "training.micro_batch_size"},
      {"local_batch_size", "training.micro_batch_size"},
      {"per_device_train_batch_size", "training.micro_batch_size"},
      {"gradient_accumulation_steps", "training.global_batch_size"},
      {"grad_accumulation", "training.global_batch_size"},
      {"max_steps", "training.steps"},
      {"max_steps_per_epoch", "training.steps"},
      {"max_iters", "training.steps"},
      {"num_epochs", "training.epochs"},
      {"num_train_epochs", "training.epochs"},
      {"grad_clip", "training.max_norm"},
      {"clip_grad_norm", "training.max_norm"},
      {"max_grad_norm", "training.max_norm"},
      {"gradient_clipping", "training.max_norm"},
      {"gradient_checkpointing", "training.activation_checkpoint"},
      {"enable_activation_checkpointing", "training.activation_checkpoint"},
      {"mixed_precision_param", "training.dtype"},
      {"model_dtype", "training.dtype"},
      {"gradient_dtype", "training.grad_dtype"},
      {"sequence_len", "data.seq_len"},
      {"max_seq_len", "data.seq_len"},
      {"max_seq_length", "data.seq_len"},
      {"block_size", "data.seq_len"},
      {"context_length", "data.seq_len"},
      {"dataset", "data.train"},
      {"datasets", "data.train"},
      {"dataset_path", "data.train"},
      {"train_file", "data.train"},
      {"eval_file", "data.validation"},
      {"sample_packing", "data.packing"},
      {"packed", "data.packing"},
      {"warmup", "lr_schedule.warmup_steps"},
      {"num_warmup_steps", "lr_schedule.warmup_steps"},
      {"warmup_iters", "lr_schedule.warmup_steps"},
      {"lr_scheduler_type", "lr_schedule.name"},
      {"decay_type", "lr_schedule.name"},
      {"cooldown", "lr_schedule.decay_steps"},
      {"lr_decay_iters", "lr_schedule.decay_steps"},
      {"min_lr", "lr_schedule.min_lr_ratio"},
      {"lr_min", "lr_schedule.min_lr_ratio"},
      {"min_lr_factor", "lr_schedule.min_lr_ratio"},
      {"final_lr_fraction", "lr_schedule.min_lr_ratio"},
      {"from_scratch", "model.init"},
      {"base_model", "model.path"},
      {"pretrained_model_name_or_path", "model.path"},
      {"initial_load_path", "model.path"},
      {"flavor", "model.preset"},
      {"lora_r", "lora.rank"},
      {"r", "lora.rank"},
      {"lora_alpha", "lora.alpha"},
      {"lora_dropout", "lora.dropout"},
      {"target_modules", "lora.targets"},
      {"lora_target_modules", "lora.targets"},
      {"data_parallel_shard_degree", "parallel.shard"},
      {"data_parallel_replicate_degree", "parallel.replicate"},
      {"expert_parallel_degree", "parallel.expert"},
      {"fsdp_reshard_after_forward", "parallel.reshard_after_forward"},
      {"enable_fsdp_float8_all_gather", "parallel.float8_all_gather"},
      {"async_mode", "checkpoint.async"},
      {"keep_latest_k", "checkpoint.keep_latest"},
      {"save_total_limit", "checkpoint.keep_latest"},
      {"save_steps", "checkpoint.interval"},
      {"ckpt_interval", "checkpoint.interval"},
      {"load_step", "checkpoint.resume"},
      {"resume_from_checkpoint", "checkpoint.resume"},
      {"output_dir", "run.folder"},
      {"dump_folder", "run.folder"},
      {"log_freq", "metrics.log_every"},
      {"logging_steps", "metrics.log_every"},
      {"log_every_n_steps", "metrics.log_every"},
      {"enable_tensorboard", "metrics.tensorboard"},
      {"eval_steps", "evaluation.interval"},
      {"eval_interval", "evaluation.interval"},
      {"run_val_every_n_steps", "evaluation.interval"},
      {"freq", "evaluation.interval"},
      {"eval_iters", "evaluation.steps"},
      {"per_device_eval_batch_size", "evaluation.micro_batch_size"},
      {"filter_fqns", "recipe.filter.exclude"},
  };
  return names;
}

// Keys of one section, or of all: what follows the first dot of the path.
std::vector<std::string> keys_of(std::string_view section) {
  std::vector<std::string> keys;
  for (const Field& field : field_table()) {
    if (section.empty() || field.section() == section) keys.emplace_back(field.key());
  }
  return keys;
}

bool is_section(std::string_view name) {
  return std::find(section_names().begin(), section_names().end(), name) != section_names().end();
}

// The field of any section whose key is `key`, or ends in it (exclude for filter.exclude).
const Field* field_with_key(std::string_view key) {
  for (const Field& field : field_table()) {
    if (field.key() == key || field.key().ends_with(fmt::format(".{}", key))) return &field;
  }
  return nullptr;
}

}  // namespace

const std::vector<Field>& field_table() {
  static const std::vector<Field> table = [] {
    Fields fields;
    add_run_fields(fields);
    add_model_fields(fields);
    add_data_fields(fields);
    add_training_fields(fields);
    add_optimizer_fields(fields);
    add_recipe_fields(fields);
    add_output_fields(fields);
    return fields;
  }();
  return table;
}

const Field* find_field(std::string_view path) {
  static const std::map<std::string_view, const Field*> index = [] {
    std::map<std::string_view, const Field*> by_path;
    for (const Field& field : field_table()) by_path.emplace(field.path, &field);
    return by_path;
  }();
  const auto found = index.find(path);
  return found == index.end() ? nullptr : found->second;
}

const std::vector<std::string>& section_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const SectionInfo& section : kSections) result.emplace_back(section.name);
    return result;
  }();
  return names;
}

std::string_view section_help(std::string_view section) {
  for (const SectionInfo& info : kSections) {
    if (info.name == section) return info.help;
  }
  return {};
}

bool is_optional_section(std::string_view section) {
  return section == "lora" || section == "export";
}

const RunConfig& default_config() {
  static const RunConfig config = [] {
    RunConfig result;
    result.lora.emplace();
    result.export_model.emplace();
    return result;
  }();
  return config;
}

std::string nearest_field(std::string_view path) {
  const std::size_t dot = path.find('.');
  const std::string_view section = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  const std::string_view key = dot == std::string_view::npos ? path : path.substr(dot + 1);

  std::string near;
  if (is_section(section)) near = nearest_name(key, keys_of(section));
  // A neighbour at distance one is a slip; one farther away may be another program's name for something else.
  if (!near.empty() && edit_distance(near, key) <= 1) return fmt::format("{}.{}", section, near);
  if (const Field* elsewhere = field_with_key(key); elsewhere != nullptr && (section.empty() || is_section(section)))
    return elsewhere->path;
  if (const auto foreign = foreign_names().find(key); foreign != foreign_names().end())
    return std::string(foreign->second);
  if (!near.empty()) return fmt::format("{}.{}", section, near);
  if (const std::string near_section = nearest_name(section, section_names()); !near_section.empty()) {
    near = nearest_name(key, keys_of(near_section));
    if (!near.empty()) return fmt::format("{}.{}", near_section, near);
  }
  near = nearest_name(key, keys_of({}));
  return near.empty() ? std::string() : field_with_key(near)->path;
}

}  // namespace quench
