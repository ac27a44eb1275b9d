#include "train/config/fields/section_fields.h"
#include "train/config/fields/tokens_codec.h"
#include "train/config/section_enum_names.h"
#include "train/config/value_codec_map.h"

namespace quench {

void add_lora_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(fields, "lora.rank", QUENCH_OPTIONAL_MEMBER(lora, rank), between(1, 1 << 16), fixed,
            "Rank of each layer's update.");
  add_field(fields, "lora.alpha", QUENCH_OPTIONAL_MEMBER(lora, alpha), above(0), guarded,
            "Scale of the update: alpha / rank.");
  add_field(fields, "lora.dropout", QUENCH_OPTIONAL_MEMBER(lora, dropout), from_below(0, 1), guarded,
            "Dropout probability of an adapter's input.");
  ValueRule names = any_value();
  names.or_one = true;
  add_field(fields, "lora.targets", QUENCH_OPTIONAL_MEMBER(lora, targets), names, fixed,
            "Layers with an adapter: last component or end of their names, or glob patterns. The default and "
            "\"all-linear\" mean all projections, under any family's names.");
  add_field(fields, "lora.rank_pattern", QUENCH_OPTIONAL_MEMBER(lora, rank_pattern), between(1, 1 << 16), fixed,
            "Ranks by pattern, in place of lora.rank; the first match in this order applies, as in PEFT.");
  add_field(fields, "lora.alpha_pattern", QUENCH_OPTIONAL_MEMBER(lora, alpha_pattern), above(0), guarded,
            "Alphas by pattern, in place of lora.alpha; the first match in this order applies.");
  add_field(fields, "lora.rslora", QUENCH_OPTIONAL_MEMBER(lora, rslora), any_value(), guarded,
            "Scale by alpha / sqrt(rank) instead (rsLoRA).");
  add_field(fields, "lora.dora", QUENCH_OPTIONAL_MEMBER(lora, dora), any_value(), fixed,
            "DoRA: train the row norms of the adapted weights too.");
  add_field(
      fields, "lora.modules_to_save", QUENCH_OPTIONAL_MEMBER(lora, modules_to_save), any_value(), fixed,
      "Modules of which a copy is trained whole, as in PEFT: embed_tokens, lm_head and norms, by the end of their "
      "names or by glob patterns. A head tied to the embedding shares its copy.");
  add_field(fields, "lora.trainable_token_indices", QUENCH_OPTIONAL_MEMBER(lora, trainable_token_indices),
            between(0, 2147483647), fixed,
            "Token ids whose rows of the embedding are trained, as in PEFT; of a head tied to it too. \"new\": the "
            "tokens of model.add_tokens, in an untied head too. An object names the ids of embed_tokens and of an "
            "untied lm_head.");
  add_field(fields, "lora.base", QUENCH_OPTIONAL_MEMBER(lora, base), any_value(), guarded,
            "Storage of the frozen weights of linear layers: dense, in training.dtype; nf4, in 4.13 bits (QLoRA); "
            "float8, in 8; stored, the quantized values of the folder in model.path.");
  add_field(fields, "lora.quantize_merged", QUENCH_OPTIONAL_MEMBER(lora, quantize_merged), any_value(), guarded,
            "Under a qat recipe, fake-quantize the merged weight W + scale B A, as an export will; false: "
            "fake-quantize W and add the update.");
}

}  // namespace quench
