#include "core/ops/quantize/weight_grids.h"
#include "recipes/recipe.h"
#include "train/config/fields/section_fields.h"
#include "train/config/recipe_choice.h"
#include "train/config/section_enum_names.h"

namespace quench {
namespace {

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const recipes::Recipe& recipe : recipes::recipe_table()) names.emplace_back(recipe.name);
  names.emplace_back(kAutoRecipe);
  return names;
}

std::vector<std::string> weight_grids() {
  std::vector<std::string> names;
  for (const WeightGrid& grid : kWeightGrids) names.emplace_back(grid.name);
  return names;
}

}  // namespace

void add_recipe_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "recipe.name", QUENCH_MEMBER(recipe.name), one_of(recipe_names()), guarded,
            "Precision of the linear layers; auto: the fastest on the run's device within an error bound, chosen "
            "at the start (docs/guide/probe.md).");
  add_field(fields, "recipe.filter.include", QUENCH_MEMBER(recipe.filter.include), any_value(), guarded,
            "Linear layers that the recipe converts: glob patterns over module names; empty: all.");
  add_field(fields, "recipe.filter.exclude", QUENCH_MEMBER(recipe.filter.exclude), any_value(), guarded,
            "Linear layers that stay in training.dtype; takes precedence over include.",
            "lm_head; none under qat_gguf");

  add_field(fields, "recipe.filter.skip_first_layers", QUENCH_MEMBER(recipe.filter.skip_first_layers), at_least(0),
            guarded, "Decoder layers at the input that stay in training.dtype.");
  add_field(fields, "recipe.filter.skip_last_layers", QUENCH_MEMBER(recipe.filter.skip_last_layers), at_least(0),
            guarded, "Decoder layers at the output that stay in training.dtype.");
  add_field(
      fields, "recipe.emulate", QUENCH_MEMBER(recipe.emulate), any_value(), guarded,
      "Emulation: f32 GEMMs of the dequantized operands instead of low-precision tensor cores; any device, slow.");
  add_field(fields, "recipe.pad", QUENCH_MEMBER(recipe.pad), any_value(), guarded,
            "Pad layers of sizes that the tensor cores do not support, instead of leaving them in training.dtype.");
  add_field(fields, "recipe.keep_weights", QUENCH_MEMBER(recipe.keep_weights), any_value(), free,
            "Keep quantized weights between the micro-batches of a step: two bytes a parameter.",
            "true where a step has several micro-batches, of 4,096 tokens or fewer, no float8 weights are gathered "
            "(parallel.float8_all_gather), lora.base is dense, and a single process has memory for them");
  add_field(fields, "recipe.fast_accumulation", QUENCH_MEMBER(recipe.fast_accumulation),
            one_of(enum_names<recipes::LinearGemm>()), guarded,
            "Float8 GEMMs that accumulate in the tensor core's reduced-precision accumulator (cuBLASLt fast "
            "accumulation): faster, fewer bits.");
  add_field(fields, "recipe.high_precision_gemms", QUENCH_MEMBER(recipe.high_precision_gemms),
            one_of(enum_names<recipes::LinearGemm>()), guarded,
            "GEMMs of every converted layer that stay in training.dtype.");
  add_field(
      fields, "recipe.gradient_rounding", QUENCH_MEMBER(recipe.gradient_rounding), any_value(), guarded,
      "Rounding of output gradients to float8: to nearest, or stochastic (unbiased), with draws of training.seed.");
  add_field(fields, "recipe.scaling", QUENCH_MEMBER(recipe.scaling), any_value(), guarded,
            "Tensorwise float8 scales of inputs and output gradients: dynamic, of their own amax, or delayed, of the "
            "largest amax of earlier steps. Weights and the head have no history.");
  add_field(fields, "recipe.amax_history", QUENCH_MEMBER(recipe.amax_history), between(1, 4096), guarded,
            "Delayed scaling: steps whose largest amax gives the scale.");
  add_field(fields, "recipe.amax_margin", QUENCH_MEMBER(recipe.amax_margin), between(0, 16), guarded,
            "Delayed scaling: scales are divided by 2^margin, headroom for values above the recorded amax.");
  std::vector<std::string> modes;
  for (int mode = 0; mode < kMxScaleModeCount; ++mode) modes.emplace_back(to_string(static_cast<MxScaleMode>(mode)));
  add_field(fields, "recipe.mx_scale", QUENCH_MEMBER(recipe.mx_scale), one_of(modes), guarded,
            "MX recipes: rounding of a block's scale from its amax; rceil and ceil never clip, floor and even may.");
  add_field(fields, "recipe.high_precision_tail", QUENCH_MEMBER(recipe.high_precision_tail), between(0, 1), guarded,
            "Share of the steps, at the end of the run, in training.dtype.");
  add_field(fields, "recipe.weight_bits", QUENCH_MEMBER(recipe.weight_bits), between(2, 8), guarded,
            "Weight bits of qat_intx recipes.", "4");
  add_field(fields, "recipe.group_size", QUENCH_MEMBER(recipe.group_size), at_least(0), guarded,
            "Group size of integer weights in quantization-aware training; 0: a row.", "32");
  add_field(fields, "recipe.asymmetric_weights", QUENCH_MEMBER(recipe.asymmetric_weights), any_value(), guarded,
            "Integer weights with zero points in quantization-aware training.");
  add_field(
      fields, "recipe.weight_grid", QUENCH_MEMBER(recipe.weight_grid), one_of(weight_grids()), guarded,
      "Weights of qat_intx recipes: int, integers of weight_bits; with a scale s by group binary (-s, s), ternary "
      "(-s, 0, s), seq (-3s, -s, s, 3s), meant for learned_scales.");
  add_field(fields, "recipe.scale_dtype", QUENCH_MEMBER(recipe.scale_dtype),
            {.nullable = true, .choices = {"bf16", "f16"}}, guarded,
            "Scales of integer weights are rounded to it in the forward pass, as the export stores them: f16 for GGUF.",
            "<training.dtype>");
  add_field(fields, "recipe.gguf_scheme", QUENCH_MEMBER(recipe.gguf_scheme), any_value(), guarded,
            "GGUF type or mix that qat_gguf trains for: q4_0, q3_k, q4_k_m, ...; the export writes it by default.");
  add_field(fields, "recipe.rules", QUENCH_MEMBER(recipe.rules), any_value(), guarded,
            "\"PATTERN=SCHEME\": layers that are trained for another scheme of the recipe's kind, or in high precision "
            "(none); the first match applies, and the export follows. A plan of bits by budget has such rules.");
  add_field(fields, "recipe.learned_scales", QUENCH_MEMBER(recipe.learned_scales), any_value(), guarded,
            "Learned step size quantization (LSQ): train the scales of integer weights without zero points, "
            "initialized from the "
            "weights.");
  add_field(fields, "recipe.scale_lr", QUENCH_MEMBER(recipe.scale_lr), between(0, 1), free,
            "Peak learning rate of learned scales, relative: AdamW moves a scale by about this share a step. It "
            "follows lr_schedule.");
  add_field(
      fields, "recipe.embedding_bits", QUENCH_MEMBER(recipe.embedding_bits), between(2, 8), guarded,
      "Embedding bits of qat recipes; null: the table stays in training.dtype. A tied head uses the same values.");
  add_field(fields, "recipe.embedding_group_size", QUENCH_MEMBER(recipe.embedding_group_size), at_least(0), guarded,
            "Group size of the quantized embedding table; 0: a row.", "32");
  add_field(fields, "recipe.start_step", QUENCH_MEMBER(recipe.start_step), at_least(0), guarded,
            "Steps at the start of the run in training.dtype, before the recipe applies.");
  add_field(fields, "recipe.stop_step", QUENCH_MEMBER(recipe.stop_step), at_least(1), guarded,
            "Last step of the recipe; the rest of the run is in training.dtype.");
}

}  // namespace quench
