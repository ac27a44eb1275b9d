// Rows of the section parallel.

#include "train/config/fields/field_builder.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

constexpr double kMaxRanks = 1 << 20;

}  // namespace

void add_parallel_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "parallel.shard", QUENCH_MEMBER(parallel.shard), between(-1, kMaxRanks), free,
            "Processes that share one copy of the model: each holds a part of every parameter, of "
            "its gradient and of the optimizer's state; -1: all processes over replicate.");
  add_field(fields, "parallel.replicate", QUENCH_MEMBER(parallel.replicate), between(1, kMaxRanks), free,
            "Copies of the model, whose gradients are summed once a step.");
  add_field(fields, "parallel.expert", QUENCH_MEMBER(parallel.expert), between(1, kMaxRanks), free,
            "Processes, of those of a copy of the model, that share its experts out: each computes "
            "with its own, on the rows that all of them send it. Divides shard and the number of "
            "experts.");
  add_field(fields, "parallel.expert_all_to_all", QUENCH_MEMBER(parallel.expert_all_to_all), any_value(), free,
            "Form in which rows travel to their experts and back, gradients too: training.dtype, or "
            "MXFP8 (about half the bytes of bf16).");
  add_field(fields, "parallel.reshard_after_forward", QUENCH_MEMBER(parallel.reshard_after_forward), any_value(), free,
            "Free a layer's gathered weights after its forward pass and gather them again for the "
            "backward pass; false: they stay, which takes a whole model's memory and sends less.");
  add_field(fields, "parallel.reduce_every_micro_batch", QUENCH_MEMBER(parallel.reduce_every_micro_batch), any_value(),
            free,
            "Sum gradients over the processes after every micro-batch; false: after the last one of a "
            "step, with whole gradients in memory until then.");
  add_field(fields, "parallel.reduce_dtype", QUENCH_MEMBER(parallel.reduce_dtype), one_of({"f32", "bf16"}), free,
            "Type of the gradients that the processes of a shard group sum.");
  add_field(fields, "parallel.float8_all_gather", QUENCH_MEMBER(parallel.float8_all_gather), any_value(), free,
            "Cast the weights of float8 layers before they are gathered: one byte an element is sent "
            "and held, each process casts its own rows only, and the bits are the same; false: "
            "gather values of training.dtype.");
}

}  // namespace quench
