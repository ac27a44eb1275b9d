#include "nn/optim/table.h"
#include "train/config/fields/groups_codec.h"
#include "train/config/fields/section_fields.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

constexpr double kMaxBatch = 1 << 24;
constexpr double kMaxMicroBatch = 1 << 20;
constexpr double kMaxExactInteger = 9007199254740991.0;  // largest exact in all JSON readers

ValueRule dtype_or_auto() {
  ValueRule rule = one_of({"f32", "bf16"});
  rule.unset_word = "auto";
  return rule;
}

// Length, batches and what is trained.
void add_step_fields(Fields& fields) {
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
            "Gradient clipping by global L2 norm; 0: off.");
  add_field(fields, "training.seed", QUENCH_MEMBER(training.seed), between(0, kMaxExactInteger), guarded,
            "Seed of initialization, data order, dropout and stochastic rounding.");
  add_field(fields, "training.freeze", QUENCH_MEMBER(training.freeze), any_value(), fixed,
            "Parameters that are not trained: glob patterns over Hugging Face tensor names. Frozen parameters have no "
            "gradient and no optimizer state.");
  add_field(fields, "training.train", QUENCH_MEMBER(training.train), any_value(), fixed,
            "The only parameters that are trained, less those of training.freeze: glob patterns; empty: all.");
}

// Dtypes of parameters, master weights, gradients and averages.
void add_weight_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "training.dtype", QUENCH_MEMBER(training.dtype), one_of({"bf16", "f32"}), guarded,
            "Dtype of parameters and activations in the forward and backward pass.");
  ValueRule master = one_of({"f32"});
  master.unset_word = "none";
  add_field(
      fields, "training.master_dtype", QUENCH_MEMBER(training.master_dtype), master, guarded,
      "Master weights of the optimizer; none: it updates the parameters directly, with stochastic rounding for bf16.");
  add_field(fields, "training.master_split", QUENCH_MEMBER(training.master_split), any_value(), guarded,
            "Master weights are stored as the bf16 parameters and their 16 missing bits: 2 bytes a parameter in place "
            "of 4. The same f32 values, but one exactly halfway above an even bf16 becomes the next f32 towards zero. "
            "For optimizer.name adamw.");
  add_field(fields, "training.grad_dtype", QUENCH_MEMBER(training.grad_dtype), dtype_or_auto(), free,
            "Dtype of parameter gradients while they accumulate over micro-batches.");
  ValueRule decay = from_below(0, 1);
  decay.above_minimum = true;
  add_field(fields, "training.ema_decay", QUENCH_MEMBER(training.ema_decay), decay, fixed,
            "Decay of an exponential moving average of the trained weights, for export.weights ema; null: no average.");
  add_field(fields, "training.ema_dtype", QUENCH_MEMBER(training.ema_dtype), one_of({"f32", "bf16"}), guarded,
            "Dtype of that average; bf16: half the memory, with stochastic rounding.");
}

}  // namespace

void add_run_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "run.name", QUENCH_MEMBER(run.name), optional_text(), free,
            "Name of the run, used for its folder and in logs.", "the config's file name without extension");
  add_field(fields, "run.folder", QUENCH_MEMBER(run.folder), optional_text(), free,
            "Folder of all outputs of the run, unless a section names its own.", "runs/<run.name>");
  add_field(fields, "run.plugins", QUENCH_MEMBER(run.plugins), any_value(), free,
            "Shared libraries that register recipes, ops, optimizers, formats or models, loaded before the rest of the "
            "config is read (docs/guide/plugins.md); those of --plugin are added.");
}

void add_training_fields(Fields& fields) {
  using enum ResumePolicy;
  add_step_fields(fields);
  add_weight_fields(fields);
  add_field(fields, "training.activation_checkpoint", QUENCH_MEMBER(training.activation_checkpoint), any_value(), free,
            "Activation checkpointing: selective recomputes norms and SwiGLU, full recomputes whole layers and saves "
            "one tensor a layer.");
  add_field(fields, "training.deterministic", QUENCH_MEMBER(training.deterministic), any_value(), free,
            "Bit-identical results for the same config on the same machine type; slower.");
  add_field(fields, "training.batch_invariant", QUENCH_MEMBER(training.batch_invariant), any_value(), free,
            "Results of a row of a forward pass do not depend on the other rows, bit for bit: log-probabilities of "
            "sampled tokens are those of training. Slower, by some percent where training is in bf16 with attention "
            "heads of at most 128 elements.");
  add_field(fields, "training.on_nonfinite", QUENCH_MEMBER(training.on_nonfinite), any_value(), free,
            "Reaction to a loss or gradient norm of NaN or Inf: end the run, skip the update, or roll back to the last "
            "checkpoint and repeat the steps since, with the same batches.");
  add_field(fields, "training.max_consecutive_skips", QUENCH_MEMBER(training.max_consecutive_skips),
            between(1, kMaxSteps), free,
            "Consecutive skipped updates after which the run fails; a rollback that fails again ends it at once.");
  add_field(fields, "training.loss_chunk_size", QUENCH_MEMBER(training.loss_chunk_size), between(0, 1 << 30), free,
            "Tokens a chunk of the fused head and cross-entropy; 0: chosen from the vocabulary size.");
  add_field(fields, "training.logits_dtype", QUENCH_MEMBER(training.logits_dtype), dtype_or_auto(), free,
            "Dtype of the logits when training in bf16; auto: f32 on a CPU, bf16 on a GPU.");
  add_field(fields, "training.offload_layers", QUENCH_MEMBER(training.offload_layers), between(0, 1 << 20), free,
            "Activation offload on a GPU: layers, evenly spaced, whose SwiGLU input (with activation_checkpoint full: "
            "the layer's input, all that it saves) is kept in pinned host memory until the backward pass.");
  add_field(fields, "training.recompute_mlp_layers", QUENCH_MEMBER(training.recompute_mlp_layers), between(0, 1 << 20),
            free,
            "With activation_checkpoint selective: layers, evenly spaced among those not offloaded, that recompute the "
            "SwiGLU input with its GEMM.");
  add_field(
      fields, "training.keep_attention_layers", QUENCH_MEMBER(training.keep_attention_layers), between(0, 1 << 20),
      free,
      "With activation_checkpoint full: layers, evenly spaced among those of offload_layers first, that save the "
      "result of attention next to their input, and do not compute it again; of offloaded layers in host memory.");
  add_field(
      fields, "training.mlp_tile_tokens", QUENCH_MEMBER(training.mlp_tile_tokens), between(0, 1 << 30), free,
      "Long sequences: tokens, a multiple of 128, at a time in the feed-forward part, which saves its input alone "
      "and is recomputed tile by tile; 0: all tokens of a micro-batch.");
  add_field(fields, "training.threads", QUENCH_MEMBER(training.threads), between(0, 4096), free,
            "CPU threads of one rank; 0: as many as the process may use.");
  add_field(
      fields, "training.memory_limit", QUENCH_MEMBER(training.memory_limit), optional_text(), free,
      "Limit of this process's memory on its GPU, such as 24GB or 16GiB, with CUDA context and libraries; the flag "
      "--memory-limit sets it.",
      "none");
  add_field(fields, "training.router_balance_loss", QUENCH_MEMBER(training.router_balance_loss), at_least(0), free,
            "Factor of the auxiliary load-balancing loss; null: the model's router_aux_loss_coef if its "
            "output_router_logits is true, else 0.");
  add_field(fields, "training.router_z_loss", QUENCH_MEMBER(training.router_z_loss), at_least(0), free,
            "Factor of the router z-loss (ST-MoE), which keeps router logits small.");
  add_field(fields, "training.mtp_loss_weight", QUENCH_MEMBER(training.mtp_loss_weight), at_least(0), free,
            "Multi-token prediction (DeepSeek-V3): weight of the cross-entropies of the model's "
            "model.num_nextn_predict_layers layers for later tokens, averaged over the layers, in the loss; 0: these "
            "layers are not trained, and not kept. A resumed run may change it, not from or to 0.");
  add_field(fields, "training.router_bias_speed", QUENCH_MEMBER(training.router_bias_speed), at_least(0), free,
            "Update rate of the router's expert bias (auxiliary-loss-free load balancing, DeepSeek-V3); null: 0.001 if "
            "the model has such a bias and is trained in full.");
}

void add_optimizer_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "optimizer.name", QUENCH_MEMBER(optimizer.name), one_of(nn::optimizer_table().names()), fixed,
            nn::optimizer_table().help("Update rule."));
  add_field(fields, "optimizer.lr", QUENCH_MEMBER(optimizer.lr), between(0, 1e3), free, "Peak learning rate.");
  add_field(fields, "optimizer.betas", QUENCH_MEMBER(optimizer.betas), from_below(0, 1), free,
            "Decay rates of the first and second moment.");
  add_field(fields, "optimizer.eps", QUENCH_MEMBER(optimizer.eps), between(0, 1), free, "Epsilon of AdamW.");
  add_field(
      fields, "optimizer.weight_decay", QUENCH_MEMBER(optimizer.weight_decay), between(0, 1e3), free,
      "Weight decay, scaled by the learning rate: decoupled; of sgd, added to the gradient as in torch.optim.SGD.");
  add_field(fields, "optimizer.state", QUENCH_MEMBER(optimizer.state), one_of({"f32", "bf16"}), guarded,
            "Dtype of the moments.");
  add_field(fields, "optimizer.stochastic_rounding", QUENCH_MEMBER(optimizer.stochastic_rounding), any_value(), guarded,
            "Stochastic rounding of bf16 writes of the optimizer (parameters without f32 master weights, bf16 "
            "moments); false: to nearest.");
  add_field(fields, "optimizer.offload_ratio", QUENCH_MEMBER(optimizer.offload_ratio), between(0, 1), free,
            "Optimizer offload on a GPU: share of moments and master weights in pinned host memory while gradients are "
            "computed.");
  add_field(fields, "optimizer.offload_streamed", QUENCH_MEMBER(optimizer.offload_streamed), any_value(), free,
            "Offloaded state stays in host memory during the update, which copies it through the GPU by buckets of "
            "parameters of 32 Mi elements or more: state of two buckets at a time is on the GPU. These copies "
            "are exposed; without streaming they overlap forward and backward.");
  add_field(fields, "optimizer.update_in_backward", QUENCH_MEMBER(optimizer.update_in_backward), any_value(), free,
            "Weights of a layer are updated in the backward pass, once their gradients are complete, and these are "
            "freed: gradients of all layers never exist at once, and copies of streamed state (offload_streamed) "
            "overlap the backward pass. Needs training.max_norm 0. With several micro-batches a step, updates are in "
            "the last one and gradients are kept until then.");
  add_field(fields, "optimizer.decay_exclude", QUENCH_MEMBER(optimizer.decay_exclude), any_value(), free,
            "Parameters without weight decay: glob patterns over Hugging Face tensor names.");
  add_field(fields, "optimizer.groups", QUENCH_MEMBER(optimizer.groups), any_value(), free,
            "Settings by parameter: each group names parameters by glob patterns (match) and gives lr_scale, a factor "
            "of the learning rate, or lr, a peak of its own, and weight_decay, also for parameters in decay_exclude; "
            "the first group that matches applies.");
  add_field(fields, "optimizer.momentum", QUENCH_MEMBER(optimizer.momentum), from_below(0, 1), free,
            "Momentum of sgd and muon.", "0.9 for sgd, 0.95 for muon");
  add_field(fields, "optimizer.nesterov", QUENCH_MEMBER(optimizer.nesterov), any_value(), free, "Nesterov momentum.",
            "false for sgd, true for muon");
  add_field(fields, "optimizer.muon_exclude", QUENCH_MEMBER(optimizer.muon_exclude), any_value(), fixed,
            "Matrices that AdamW updates instead of muon: glob patterns over Hugging Face tensor names.");

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
