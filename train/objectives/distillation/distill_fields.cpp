#include "train/config/fields/field_builder.h"
#include "train/config/section_enum_names.h"
#include "train/config/value_codec_map.h"
#include "train/objectives/distillation/distill_section.h"

namespace quench {

void add_distill_fields(Fields& fields) {
  using enum ResumePolicy;
  add_field(
      fields, "distill.teacher", QUENCH_OBJECTIVE_MEMBER(DistillSection, teacher), optional_path(), guarded,
      "Teacher: base, the frozen weights under adapters, in high precision; initial, a frozen copy of the weights "
      "at step 0; or a model folder of the same vocabulary, in any format that model.path reads.",
      "base with section lora, else initial");
  add_field(fields, "distill.loss", QUENCH_OBJECTIVE_MEMBER(DistillSection, loss), any_value(), guarded,
            "Divergence of teacher p and student q over the full vocabulary: forward_kl, KL(p | q); reverse_kl, "
            "KL(q | p); jensen_shannon, their mixture by distill.beta (GKD).");
  add_field(fields, "distill.temperature", QUENCH_OBJECTIVE_MEMBER(DistillSection, temperature), above(0), guarded,
            "Temperature T of both distributions; the divergence is scaled by T^2.");
  add_field(fields, "distill.beta", QUENCH_OBJECTIVE_MEMBER(DistillSection, beta),
            ValueRule{.minimum = 0, .maximum = 1, .above_minimum = true, .below_maximum = true}, guarded,
            "jensen_shannon: weight of the teacher in the mixture.");
  add_field(fields, "distill.ratio", QUENCH_OBJECTIVE_MEMBER(DistillSection, ratio),
            ValueRule{.minimum = 0, .maximum = 1, .above_minimum = true}, guarded,
            "Loss: (1 - ratio) x cross-entropy + ratio x divergence.");
  add_field(fields, "distill.teacher_weights", QUENCH_OBJECTIVE_MEMBER(DistillSection, teacher_weights), any_value(),
            guarded,
            "Storage of a second model's linear layers: dense, in training.dtype; float8, in 8 bits; nf4, in 4.13; "
            "stored, the quantized values of the teacher's folder.");
  add_field(fields, "distill.offload", QUENCH_OBJECTIVE_MEMBER(DistillSection, offload), any_value(), free,
            "A second model's weights are in pinned host memory and copied to the GPU one decoder layer ahead of their "
            "use: two layers at a time are on the GPU. With distill.targets, of `quench distill-targets` alone.");
  add_field(fields, "distill.targets", QUENCH_OBJECTIVE_MEMBER(DistillSection, targets), optional_text(), guarded,
            "Folder of a teacher's most probable tokens, computed once by `quench distill-targets CONFIG`: training "
            "reads them in place of running the teacher. Unset: the teacher runs in every step.");
  add_field(fields, "distill.top_k", QUENCH_OBJECTIVE_MEMBER(DistillSection, top_k), between(1, 1 << 20), guarded,
            "Tokens of a stored target; the others count as one outcome, with their joint probability.");
  add_field(fields, "distill.targets_dtype", QUENCH_OBJECTIVE_MEMBER(DistillSection, targets_dtype),
            one_of({"f16", "f32"}), guarded, "Dtype of stored log-probabilities.");
  add_field(
      fields, "distill.on_policy", QUENCH_OBJECTIVE_MEMBER(DistillSection, on_policy), between(0, 1), guarded,
      "Share of steps that train on answers which the student samples to the prompts of the data, in place of the "
      "data's answers (GKD's lambda); drawn by training.seed and the step.");
  add_field(fields, "distill.max_completion_length", QUENCH_OBJECTIVE_MEMBER(DistillSection, max_completion_length),
            at_least(1), guarded,
            "Most tokens of a sampled answer, fewer where prompt and answer would exceed data.seq_len.");
  add_field(fields, "distill.sampling_temperature", QUENCH_OBJECTIVE_MEMBER(DistillSection, sampling_temperature),
            above(0), guarded, "Temperature of sampled answers.");
  add_field(fields, "distill.log_completions", QUENCH_OBJECTIVE_MEMBER(DistillSection, log_completions), at_least(0),
            free, "Sampled answers that a logged step adds to samples.jsonl, TensorBoard and the log.");
  add_field(fields, "distill.hidden.weight", QUENCH_OBJECTIVE_MEMBER(DistillSection, hidden.weight), at_least(0),
            guarded, "Weight of the loss on hidden states after decoder layers, which is added to the loss; 0: none.");
  add_field(fields, "distill.hidden.layers", QUENCH_OBJECTIVE_MEMBER(DistillSection, hidden.layers), between(0, 65535),
            guarded, "The student's layers, from 0, whose outputs are compared; empty: all.");
  add_field(fields, "distill.hidden.teacher_layers", QUENCH_OBJECTIVE_MEMBER(DistillSection, hidden.teacher_layers),
            between(0, 65535), guarded,
            "The teacher's layer for each of them; empty: the layer at the same share of the depth, in models of equal "
            "depth the same one.");
  add_field(fields, "distill.hidden.loss", QUENCH_OBJECTIVE_MEMBER(DistillSection, hidden.loss), any_value(), guarded,
            "Distance of the student's hidden state s from the teacher's t, both of H elements: mse, |s - t|^2 / H; "
            "cosine, 1 - cos(s, t); normalized_mse, |s - t|^2 / |t|^2.");
}

}  // namespace quench
