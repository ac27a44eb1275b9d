// Rows of the sections recipe, lora and parallel.

#include "train/config/enum_names.h"
#include "train/config/field_builder.h"

namespace quench {

void add_recipe_fields(Fields& fields) {
  using enum ResumePolicy;
  fields.push_back(
      make_field("recipe.name", QUENCH_MEMBER(recipe.name),
                 one_of({"bf16", "float8_tensorwise", "float8_rowwise", "float8_rowwise_with_gw_hp", "mxfp8", "auto",
                         "qat_int8dyn_int4", "qat_int4_weight_only", "qat_float8"}),
                 guarded,
                 "Precision of the linear layers; auto: the fastest on the run's device within an error bound, chosen "
                 "at the start (docs/probe.md)."));
  fields.push_back(make_field("recipe.filter.include", QUENCH_MEMBER(recipe.filter.include), any_value(), guarded,
                              "Linear layers that get the recipe: glob patterns over module names; empty: all."));
  fields.push_back(make_field("recipe.filter.exclude", QUENCH_MEMBER(recipe.filter.exclude), any_value(), guarded,
                              "Linear layers that stay in training.dtype; wins over include."));

  fields.push_back(make_field("recipe.filter.skip_first_layers", QUENCH_MEMBER(recipe.filter.skip_first_layers),
                              at_least(0), guarded, "Decoder layers at the input that stay in training.dtype."));
  fields.push_back(make_field("recipe.filter.skip_last_layers", QUENCH_MEMBER(recipe.filter.skip_last_layers),
                              at_least(0), guarded, "Decoder layers at the output that stay in training.dtype."));
  fields.push_back(make_field("recipe.emulate", QUENCH_MEMBER(recipe.emulate), any_value(), guarded,
                              "Multiply the dequantized operands in f32 instead of on low-precision tensor cores: any "
                              "device, slow."));
  fields.push_back(make_field("recipe.pad", QUENCH_MEMBER(recipe.pad), any_value(), guarded,
                              "Pad layers whose sizes the tensor cores do not take, instead of leaving them in "
                              "training.dtype."));
  fields.push_back(make_field("recipe.keep_weights", QUENCH_MEMBER(recipe.keep_weights), any_value(), free,
                              "Keep quantized weights between the micro-batches of a step: two bytes a parameter.",
                              "true where a step has several micro-batches, of 4,096 tokens or fewer"));
  fields.push_back(make_field("recipe.fast_accumulation", QUENCH_MEMBER(recipe.fast_accumulation),
                              one_of({"forward", "dgrad", "wgrad"}), guarded,
                              "Float8 products that add in the tensor core's own accumulator: faster, fewer bits."));
  fields.push_back(make_field("recipe.high_precision_gemms", QUENCH_MEMBER(recipe.high_precision_gemms),
                              one_of({"forward", "dgrad", "wgrad"}), guarded,
                              "Products of every converted layer that stay in training.dtype."));
  fields.push_back(make_field("recipe.gradient_rounding", QUENCH_MEMBER(recipe.gradient_rounding), any_value(), guarded,
                              "How output gradients become float8: to the nearest value, or to one of the two next to "
                              "it at random, right in the mean, with draws of training.seed."));
  fields.push_back(make_field("recipe.high_precision_tail", QUENCH_MEMBER(recipe.high_precision_tail), between(0, 1),
                              guarded, "Share of the steps, at the end of the run, that run in training.dtype."));

  fields.push_back(make_field("lora.rank", QUENCH_OPTIONAL_MEMBER(lora, rank), between(1, 65536), fixed,
                              "Rank of the low-rank update."));
  fields.push_back(make_field("lora.alpha", QUENCH_OPTIONAL_MEMBER(lora, alpha), above(0), guarded,
                              "The update is scaled by alpha / rank."));
  fields.push_back(make_field("lora.dropout", QUENCH_OPTIONAL_MEMBER(lora, dropout), from_below(0, 1), free,
                              "Dropout on the input of the update."));
  fields.push_back(make_field("lora.targets", QUENCH_OPTIONAL_MEMBER(lora, targets), any_value(), fixed,
                              "Names of the linear layers that get an update."));

  fields.push_back(make_field("parallel.shard", QUENCH_MEMBER(parallel.shard), between(-1, 65536), free,
                              "Ranks that share one copy of parameters, gradients and optimizer state; -1: all ranks "
                              "that remain."));
  fields.push_back(make_field("parallel.replicate", QUENCH_MEMBER(parallel.replicate), between(1, 65536), free,
                              "Copies of the sharded model."));
  fields.push_back(make_field("parallel.expert", QUENCH_MEMBER(parallel.expert), between(1, 65536), free,
                              "Ranks over which the experts of a layer are spread."));
  fields.push_back(make_field("parallel.reshard_after_forward", QUENCH_MEMBER(parallel.reshard_after_forward),
                              any_value(), free,
                              "Free gathered parameters after the forward pass and gather them again for backward."));
  fields.push_back(make_field("parallel.float8_all_gather", QUENCH_MEMBER(parallel.float8_all_gather), any_value(),
                              free, "Gather float8 weights already cast, where the recipe allows it."));
}

}  // namespace quench
