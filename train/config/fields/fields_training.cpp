// Rows of the sections run, training, optimizer and lr_schedule.

#include "nn/optim/table.h"
#include "train/config/fields/field_builder.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

constexpr double kMaxBatch = 1 << 24;
constexpr double kMaxMicroBatch = 1 << 20;
constexpr double kMaxExactInteger = 9007199254740991.0;  // what every JSON reader keeps exactly

}  // namespace

void add_run_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "run.name", QUENCH_MEMBER(run.name), optional_text(), free,
            "Name of the run, used for its folder and in logs.", "the config's file name without extension");
  add_field(fields, "run.folder", QUENCH_MEMBER(run.folder), optional_text(), free,
            "Folder that holds everything the run writes, unless a section names its own.", "runs/<run.name>");
}

void add_training_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "training.steps", QUENCH_MEMBER(training.steps), between(1, kMaxSteps), free,
            "Optimizer steps. Give this, training.epochs or both; the run ends at the first.");
  ValueRule epochs = above(0);
  epochs.maximum = 1e6;
  add_field(fields, "training.epochs", QUENCH_MEMBER(training.epochs), epochs, free,
            "Passes over data.train; may be a fraction.");
  add_field(fields, "training.micro_batch_size", QUENCH_MEMBER(training.micro_batch_size), between(1, kMaxMicroBatch),
            free, "Sequences of one forward pass on one rank.");
  add_field(fields, "training.global_batch_size", QUENCH_MEMBER(training.global_batch_size), between(1, kMaxBatch),
            guarded,
            "Sequences of one optimizer step over all ranks and accumulation steps; null: "
            "micro_batch_size x ranks, no accumulation.");
  add_field(fields, "training.max_norm", QUENCH_MEMBER(training.max_norm), at_least(0), free,
            "Limit of the global gradient norm (clipping); 0 turns clipping off.");
  add_field(fields, "training.seed", QUENCH_MEMBER(training.seed), between(0, kMaxExactInteger), guarded,
            "Seed of initialisation, data order, dropout and stochastic rounding.");
  add_field(fields, "training.dtype", QUENCH_MEMBER(training.dtype), one_of({"bf16", "f32"}), guarded,
            "Parameters and activations of the forward and backward pass.");
  ValueRule master = one_of({"f32"});
  master.unset_word = "none";
  add_field(fields, "training.master_dtype", QUENCH_MEMBER(training.master_dtype), master, guarded,
            "Copy of the parameters that the optimizer updates; none: it updates the parameters "
            "themselves, with stochastic rounding where they are bf16.");
  ValueRule gradient = one_of({"f32", "bf16"});
  gradient.unset_word = "auto";
  add_field(fields, "training.grad_dtype", QUENCH_MEMBER(training.grad_dtype), gradient, free,
            "Gradients of the parameters as they accumulate over micro-batches.");
  add_field(fields, "training.activation_checkpoint", QUENCH_MEMBER(training.activation_checkpoint), any_value(), free,
            "Recompute activations in the backward pass: selective keeps what is costly to "
            "recompute, full keeps one tensor a layer.");
  add_field(fields, "training.deterministic", QUENCH_MEMBER(training.deterministic), any_value(), free,
            "Bit-equal results for the same config on the same machine type, at some speed.");
  add_field(fields, "training.on_nonfinite", QUENCH_MEMBER(training.on_nonfinite), any_value(), free,
            "When the loss or the gradient norm is NaN or Inf: end the run, skip the update, or "
            "go back to the last checkpoint and skip the batches that led there.");
  add_field(fields, "training.max_consecutive_skips", QUENCH_MEMBER(training.max_consecutive_skips),
            between(1, kMaxSteps), free, "Skipped updates or rollbacks in a row after which the run ends as failed.");
  add_field(fields, "training.loss_chunk_size", QUENCH_MEMBER(training.loss_chunk_size), between(0, 1 << 30), free,
            "Tokens whose logits exist at once in the loss; 0: chosen from the vocabulary size.");
  add_field(fields, "training.logits_dtype", QUENCH_MEMBER(training.logits_dtype), gradient, free,
            "Logits of the loss when training in bf16; auto: f32 on a CPU, bf16 on a GPU.");
  add_field(fields, "training.offload_layers", QUENCH_MEMBER(training.offload_layers), between(0, 1 << 20), free,
            "On a GPU: layers, evenly spaced, whose largest activation waits for the backward pass "
            "in host memory.");
  add_field(fields, "training.recompute_mlp_layers", QUENCH_MEMBER(training.recompute_mlp_layers), between(0, 1 << 20),
            free,
            "With activation_checkpoint selective: layers, evenly spaced among those that are not "
            "offloaded, whose largest activation is made again by the product it came from.");
  add_field(fields, "training.threads", QUENCH_MEMBER(training.threads), between(0, 4096), free,
            "CPU threads of one rank; 0: as many as the process may use.");
  add_field(fields, "training.router_balance_loss", QUENCH_MEMBER(training.router_balance_loss), at_least(0), free,
            "Factor of the load-balancing loss of a model with experts; null: the model's "
            "router_aux_loss_coef where its output_router_logits is true, else 0.");
  add_field(fields, "training.router_z_loss", QUENCH_MEMBER(training.router_z_loss), at_least(0), free,
            "Factor of the loss that keeps the router's logits of a model with experts small.");
  add_field(fields, "training.router_bias_speed", QUENCH_MEMBER(training.router_bias_speed), at_least(0), free,
            "What the bias on a router's choice of an expert changes by in a step, towards even loads "
            "(DeepSeek-V3); null: 0.001 where the model has such a bias and all of it is trained.");
}

void add_optimizer_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "optimizer.name", QUENCH_MEMBER(optimizer.name), one_of(nn::optimizer_table().names()), fixed,
            nn::optimizer_table().help("Update rule."));
  add_field(fields, "optimizer.lr", QUENCH_MEMBER(optimizer.lr), between(0, 1e3), free, "Peak learning rate.");
  add_field(fields, "optimizer.betas", QUENCH_MEMBER(optimizer.betas), from_below(0, 1), free,
            "Decay rates of the running mean and of the running mean square.");
  add_field(fields, "optimizer.eps", QUENCH_MEMBER(optimizer.eps), between(0, 1), free,
            "Added to the root of the mean square.");
  add_field(fields, "optimizer.weight_decay", QUENCH_MEMBER(optimizer.weight_decay), between(0, 1e3), free,
            "Decoupled weight decay, scaled by the learning rate.");
  add_field(fields, "optimizer.state", QUENCH_MEMBER(optimizer.state), one_of({"f32", "bf16"}), guarded,
            "Storage of the two running means.");
  add_field(fields, "optimizer.stochastic_rounding", QUENCH_MEMBER(optimizer.stochastic_rounding), any_value(), guarded,
            "Round stochastically where the optimizer writes bf16 (parameters without an f32 "
            "master, bf16 state); false: to nearest.");
  add_field(fields, "optimizer.offload_ratio", QUENCH_MEMBER(optimizer.offload_ratio), between(0, 1), free,
            "On a GPU: share of the optimizer's state (running means and f32 master weights) that "
            "waits in host memory while gradients are computed.");
  add_field(fields, "optimizer.decay_exclude", QUENCH_MEMBER(optimizer.decay_exclude), any_value(), free,
            "Parameters without weight decay: glob patterns over Hugging Face tensor names.");
  add_field(fields, "optimizer.momentum", QUENCH_MEMBER(optimizer.momentum), from_below(0, 1), free,
            "Decay rate of the momentum of sgd and muon.", "0.9 for sgd, 0.95 for muon");
  add_field(fields, "optimizer.nesterov", QUENCH_MEMBER(optimizer.nesterov), any_value(), free,
            "Whether the step looks ahead along the momentum.", "false for sgd, true for muon");
  add_field(fields, "optimizer.muon_exclude", QUENCH_MEMBER(optimizer.muon_exclude), any_value(), fixed,
            "Matrices that muon leaves to AdamW: glob patterns over Hugging Face tensor names.");

  add_field(fields, "lr_schedule.name", QUENCH_MEMBER(lr_schedule.name), one_of(lr_schedules().names()), free,
            lr_schedules().help("Learning rate after the linear warmup."));
  add_field(fields, "lr_schedule.warmup_steps", QUENCH_MEMBER(lr_schedule.warmup_steps), between(0, kMaxSteps), free,
            "Steps of linear warmup up to optimizer.lr.");
  add_field(fields, "lr_schedule.decay_steps", QUENCH_MEMBER(lr_schedule.decay_steps), between(1, kMaxSteps), free,
            "Steps of decay. cosine, linear: counted from the end of the warmup, null: to the end "
            "of the run; wsd: the last steps of the run.");
  ValueRule ratio = between(0, 1);
  ratio.above_minimum = true;
  add_field(fields, "lr_schedule.decay_ratio", QUENCH_MEMBER(lr_schedule.decay_ratio), ratio, free,
            "decay_steps as a share of all steps; give one of the two.", "0.2 for wsd without decay_steps, else null");
  add_field(fields, "lr_schedule.decay_shape", QUENCH_MEMBER(lr_schedule.decay_shape), any_value(), free,
            "Shape of the decay of wsd.");
  add_field(fields, "lr_schedule.min_lr_ratio", QUENCH_MEMBER(lr_schedule.min_lr_ratio), between(0, 1), free,
            "Learning rate after the decay, relative to optimizer.lr.");
}

}  // namespace quench
