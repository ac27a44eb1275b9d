// Rows of the section recipe.

#include "recipes/recipe.h"
#include "train/config/enum_names.h"
#include "train/config/fields/field_builder.h"
#include "train/config/recipe_choice.h"

namespace quench {
namespace {

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const recipes::Recipe& recipe : recipes::recipe_table()) names.emplace_back(recipe.name);
  names.emplace_back(kAutoRecipe);
  return names;
}

}  // namespace

void add_recipe_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "recipe.name", QUENCH_MEMBER(recipe.name), one_of(recipe_names()), guarded,
            "Precision of the linear layers; auto: the fastest on the run's device within an error bound, chosen "
            "at the start (docs/guide/probe.md).");
  add_field(fields, "recipe.filter.include", QUENCH_MEMBER(recipe.filter.include), any_value(), guarded,
            "Linear layers that get the recipe: glob patterns over module names; empty: all.");
  add_field(fields, "recipe.filter.exclude", QUENCH_MEMBER(recipe.filter.exclude), any_value(), guarded,
            "Linear layers that stay in training.dtype; wins over include.");

  add_field(fields, "recipe.filter.skip_first_layers", QUENCH_MEMBER(recipe.filter.skip_first_layers), at_least(0),
            guarded, "Decoder layers at the input that stay in training.dtype.");
  add_field(fields, "recipe.filter.skip_last_layers", QUENCH_MEMBER(recipe.filter.skip_last_layers), at_least(0),
            guarded, "Decoder layers at the output that stay in training.dtype.");
  add_field(fields, "recipe.emulate", QUENCH_MEMBER(recipe.emulate), any_value(), guarded,
            "Multiply the dequantized operands in f32 instead of on low-precision tensor cores: any "
            "device, slow.");
  add_field(fields, "recipe.pad", QUENCH_MEMBER(recipe.pad), any_value(), guarded,
            "Pad layers whose sizes the tensor cores do not take, instead of leaving them in "
            "training.dtype.");
  add_field(fields, "recipe.keep_weights", QUENCH_MEMBER(recipe.keep_weights), any_value(), free,
            "Keep quantized weights between the micro-batches of a step: two bytes a parameter.",
            "true where a step has several micro-batches, of 4,096 tokens or fewer, and "
            "no codes are gathered (parallel.float8_all_gather)");
  add_field(fields, "recipe.fast_accumulation", QUENCH_MEMBER(recipe.fast_accumulation),
            one_of(enum_names<recipes::LinearGemm>()), guarded,
            "Float8 products that add in the tensor core's own accumulator: faster, fewer bits.");
  add_field(fields, "recipe.high_precision_gemms", QUENCH_MEMBER(recipe.high_precision_gemms),
            one_of(enum_names<recipes::LinearGemm>()), guarded,
            "Products of every converted layer that stay in training.dtype.");
  add_field(fields, "recipe.gradient_rounding", QUENCH_MEMBER(recipe.gradient_rounding), any_value(), guarded,
            "How output gradients become float8: to the nearest value, or to one of the two next to "
            "it at random, right in the mean, with draws of training.seed.");
  std::vector<std::string> modes;
  for (int mode = 0; mode < kMxScaleModeCount; ++mode) modes.emplace_back(to_string(static_cast<MxScaleMode>(mode)));
  add_field(fields, "recipe.mx_scale", QUENCH_MEMBER(recipe.mx_scale), one_of(modes), guarded,
            "MX recipes: how a block's scale follows from its largest magnitude; rceil and ceil never "
            "clip, floor and even may.");
  add_field(fields, "recipe.high_precision_tail", QUENCH_MEMBER(recipe.high_precision_tail), between(0, 1), guarded,
            "Share of the steps, at the end of the run, that run in training.dtype.");
  add_field(fields, "recipe.weight_bits", QUENCH_MEMBER(recipe.weight_bits), between(2, 8), guarded,
            "Bits of the weights that a qat_intx recipe trains for.", "4");
  add_field(fields, "recipe.group_size", QUENCH_MEMBER(recipe.group_size), at_least(0), guarded,
            "Inputs whose weights share a scale in quantization-aware training; 0: all of a row.", "32");
  add_field(fields, "recipe.asymmetric_weights", QUENCH_MEMBER(recipe.asymmetric_weights), any_value(), guarded,
            "Integer weights with zero points in quantization-aware training.");
  add_field(fields, "recipe.learned_scales", QUENCH_MEMBER(recipe.learned_scales), any_value(), guarded,
            "Train the scales of symmetric integer weights (LSQ), beginning with those that follow "
            "from the weights.");
  add_field(fields, "recipe.scale_lr", QUENCH_MEMBER(recipe.scale_lr), between(0, 1), free,
            "Peak learning rate of learned scales, relative: AdamW moves a scale by about this share "
            "of itself in a step. It follows the schedule of optimizer.lr.");
  add_field(fields, "recipe.embedding_bits", QUENCH_MEMBER(recipe.embedding_bits), between(2, 8), guarded,
            "Bits of the embedding table that a qat recipe trains for; null: it stays in "
            "training.dtype. A tied head has the table's.");
  add_field(fields, "recipe.embedding_group_size", QUENCH_MEMBER(recipe.embedding_group_size), at_least(0), guarded,
            "Elements of an embedding's row that share a scale; 0: all.", "32");
  add_field(fields, "recipe.start_step", QUENCH_MEMBER(recipe.start_step), at_least(0), guarded,
            "Steps at the beginning of the run that run in training.dtype.");
  add_field(fields, "recipe.stop_step", QUENCH_MEMBER(recipe.stop_step), at_least(1), guarded,
            "Step after which the rest of the run is in training.dtype.");
}

}  // namespace quench
