#include "train/config/fields/section_fields.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

constexpr double kMaxRanks = 1 << 20;

}  // namespace

void add_parallel_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "parallel.shard", QUENCH_MEMBER(parallel.shard), between(-1, kMaxRanks), free,
            "FSDP: parts of the data of one copy of the model, over whose ranks (times context) parameters, gradients "
            "and optimizer state are sharded; -1: all processes / replicate / context / tensor / pipeline.");
  add_field(fields, "parallel.replicate", QUENCH_MEMBER(parallel.replicate), between(1, kMaxRanks), free,
            "HSDP replicas of the model; their gradients are all-reduced once a step.");
  add_field(
      fields, "parallel.context", QUENCH_MEMBER(parallel.context), between(1, kMaxRanks), free,
      "Context parallelism: ranks that share each sequence, for sequences whose activations one GPU cannot hold. "
      "Twice this many must divide data.seq_len; replicate x shard x context x tensor x pipeline is the number of "
      "processes.");
  add_field(
      fields, "parallel.tensor", QUENCH_MEMBER(parallel.tensor), between(1, kMaxRanks), free,
      "Tensor parallelism: ranks, best of one node, that split attention by heads, the feed-forward part by its "
      "width and embedding and head by the vocabulary, and the tokens between them; they read the same sequences. "
      "Must divide num_attention_heads, num_key_value_heads, intermediate_size and vocab_size.");
  add_field(
      fields, "parallel.pipeline", QUENCH_MEMBER(parallel.pipeline), between(1, kMaxRanks), free,
      "Pipeline parallelism: stages of consecutive decoder layers, the outermost axis of the ranks. Hidden states "
      "and their gradients are all that stages send each other; micro-batches are those of a step "
      "(training.global_batch_size).");
  add_field(
      fields, "parallel.pipeline_schedule", QUENCH_MEMBER(parallel.pipeline_schedule), any_value(), free,
      "1f1b: stages alternate forward and backward passes; interleaved: the same over several chunks of layers of "
      "each stage, for a shorter bubble and more messages.");
  add_field(fields, "parallel.pipeline_chunks", QUENCH_MEMBER(parallel.pipeline_chunks), between(2, kMaxRanks), free,
            "Chunks of layers of each stage under pipeline_schedule interleaved, which needs a multiple of "
            "parallel.pipeline micro-batches.");
  add_field(
      fields, "parallel.pipeline_layers", QUENCH_MEMBER(parallel.pipeline_layers), between(1, 65536), free,
      "Decoder layers of each stage, or of each chunk in the order of the model (chunk c of stage s is number c x "
      "pipeline + s); empty: balanced by FLOPs, with the head and the embedding.");
  add_field(fields, "parallel.expert", QUENCH_MEMBER(parallel.expert), between(1, kMaxRanks), free,
            "Expert-parallel size: ranks of a shard group that split the experts; tokens are exchanged by all-to-all. "
            "Must divide parallel.shard x parallel.context and the number of experts.");
  add_field(fields, "parallel.expert_all_to_all", QUENCH_MEMBER(parallel.expert_all_to_all), any_value(), free,
            "Format of token rows and their gradients in the expert all-to-all: training.dtype, or MXFP8 (about half "
            "the bytes of bf16).");
  add_field(fields, "parallel.reshard_after_forward", QUENCH_MEMBER(parallel.reshard_after_forward), any_value(), free,
            "Free a layer's gathered weights after its forward pass and all-gather them again for the backward pass; "
            "false: keep them, for a whole model's memory and less traffic.");
  add_field(fields, "parallel.reduce_every_micro_batch", QUENCH_MEMBER(parallel.reduce_every_micro_batch), any_value(),
            free,
            "Reduce-scatter gradients after every micro-batch; false: after the last one of a step (as no_sync), with "
            "whole gradients in memory until then.");
  add_field(fields, "parallel.reduce_dtype", QUENCH_MEMBER(parallel.reduce_dtype), one_of({"f32", "bf16"}), free,
            "Dtype of the gradient reduce-scatter.");
  add_field(fields, "parallel.float8_all_gather", QUENCH_MEMBER(parallel.float8_all_gather), any_value(), free,
            "Cast the weights of float8 layers before the all-gather: one byte an element is sent and held, with "
            "identical results; false: gather in training.dtype.");
}

}  // namespace quench
