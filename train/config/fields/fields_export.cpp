#include "export/table/format.h"
#include "export/table/reader_table.h"
#include "recipes/sparse.h"
#include "train/config/fields/section_fields.h"

namespace quench {
namespace {

#define QUENCH_QUANTIZATION(member) QUENCH_OPTIONAL_MEMBER(export_model, quantization.member)

ValueRule one_of_or_null(std::vector<std::string> choices) {
  return {.nullable = true, .choices = std::move(choices)};
}

std::vector<std::string> format_names() {
  std::vector<std::string> names = export_format_names();
  for (const std::string_view format : kAdapterFormats) names.emplace_back(format);
  return names;
}

std::vector<std::string> method_names() {
  std::vector<std::string> names = quantizer_names();
  names.emplace_back(kAutoMethod);
  return names;
}

std::vector<std::string> sparsity_names() {
  std::vector<std::string> names;
  for (const recipes::SparsityChoice& choice : recipes::sparsity_choices()) names.emplace_back(choice.name);
  return names;
}

}  // namespace

void add_export_fields(Fields& fields) {
  using enum ResumePolicy;
  const auto add = [&](const char* key, auto access, const ValueRule& rule, std::string_view help,
                       std::string_view derived = {}) {
    add_field(fields, fmt::format("export.{}", key), access, rule, free, help, derived);
  };
  add("format", QUENCH_OPTIONAL_MEMBER(export_model, format), one_of_or_null(format_names()),
      fmt::format("Format of the model written after the last step, with adapters merged (docs/reference/formats.md); "
                  "{}: the adapters alone.",
                  fmt::join(kAdapterFormats, ", ")),
      "compressed-tensors with a scheme or under a qat recipe, else hf");
  add("folder", QUENCH_OPTIONAL_MEMBER(export_model, folder), optional_text(),
      "Folder of the exported model, or with format gguf a file *.gguf; an earlier export is replaced.",
      "<run.folder>/export");
  add("overwrite", QUENCH_OPTIONAL_MEMBER(export_model, overwrite), any_value(),
      "Write into a folder with other files, replacing only files of the same names.");
  add("weights", QUENCH_OPTIONAL_MEMBER(export_model, weights), one_of({"final", std::string(kAveragedWeights)}),
      "final: the weights after the last step; ema: their average (training.ema_decay).");
  add("dtype", QUENCH_OPTIONAL_MEMBER(export_model, dtype), one_of_or_null({"f32", "bf16", "f16"}),
      "Dtype of unquantized weights and of scales; values stay those of training. f16 is for unquantized models, f32 "
      "for ExecuTorch.",
      "<training.dtype>");
  add("reader", QUENCH_OPTIONAL_MEMBER(export_model, reader), one_of_or_null(folder_readers().names()),
      "Target program: schemes that it cannot run are refused. null: only schemes that no program can run are refused, "
      "and a warning names the programs that cannot.");
  add("scheme", QUENCH_QUANTIZATION(scheme), optional_text(),
      "Quantization scheme of the weights (docs/reference/formats.md).",
      "what the qat recipe simulates, where the format stores that");
  add("method", QUENCH_QUANTIZATION(method), one_of(method_names()),
      fmt::format(
          "Quantization method. {}: RTN; if its loss on data.validation exceeds that of the trained model by "
          "more than {:g}, also {} with export.calibration or else rows of the training data, and the better of "
          "the two. Codes that a qat recipe has trained stay as they are.",
          kAutoMethod, kNotableLossRise, kCalibratedMethod));
  add("rules", QUENCH_QUANTIZATION(rules), any_value(),
      "\"PATTERN=SCHEME\": another scheme, or none, for the layers whose names match; the first match applies.");
  add("embeddings", QUENCH_QUANTIZATION(embeddings), optional_text(),
      "Scheme of the embedding table; null: high precision, under GGUF schemes that of llama.cpp.",
      "what recipe.embedding_bits simulates, under the scheme of the recipe");
  add("exclude", QUENCH_QUANTIZATION(exclude), any_value(),
      "Patterns of layers that stay in high precision; null: the layers that the qat recipe leaves out, if its scheme "
      "is used, else lm_head, under GGUF schemes none.");
  add("sparsity", QUENCH_OPTIONAL_MEMBER(export_model, sparsity), one_of_or_null(sparsity_names()),
      "Prune weights first, as the recipes sparse24... do, except those of export.exclude.");
  add("calibration", QUENCH_QUANTIZATION(calibration), any_value(),
      "Calibration data for methods and schemes that need it, and for the importance matrix of GGUF schemes: files of "
      "text, records or tokens, or folders of them, read at the start of the run.");
  add("imatrix", QUENCH_QUANTIZATION(imatrix), optional_text(),
      "Importance matrix of llama.cpp (llama-imatrix; GGUF or legacy .dat) for GGUF schemes; null: computed on "
      "export.calibration, if named.");
  add("save_imatrix", QUENCH_QUANTIZATION(save_imatrix), optional_text(),
      "File for the importance matrix that is computed on export.calibration, in llama.cpp's GGUF form.");
  add("calibration_samples", QUENCH_QUANTIZATION(calibration_samples), between(1, 1 << 24),
      "Number of calibration sequences.");
  add("calibration_seq_len", QUENCH_QUANTIZATION(calibration_seq_len), between(0, 1 << 24),
      fmt::format("Tokens of each calibration sequence; 0: {}, at most the model's context.", kCalibrationTokens));
  add("damping", QUENCH_QUANTIZATION(damping), between(0, 1e6),
      fmt::format("GPTQ: damping of the Hessian, as a share of its mean diagonal; null: {}.", MethodOptions().damping));
  add("act_order", QUENCH_QUANTIZATION(act_order), any_value(),
      "GPTQ: quantize columns in order of decreasing activation (desc_act), under scales of least squared error; "
      "false: in "
      "their order, a group's scales by its amax at its first column; null: true.");
  add("smoothing", QUENCH_QUANTIZATION(smoothing), between(0, 1),
      fmt::format("SmoothQuant migration strength: 0 leaves the inputs unchanged, 1 moves their whole range into the "
                  "weights; null: {}.",
                  MethodOptions().smoothing));
  add("iterations", QUENCH_QUANTIZATION(iterations), between(1, 1 << 24),
      fmt::format("AutoRound: steps of each decoder layer; null: {}.", MethodOptions().iterations));
  add("batch_size", QUENCH_QUANTIZATION(batch_size), between(1, 1 << 24),
      fmt::format("AutoRound: calibration sequences of a step; null: {}.", MethodOptions().batch_size));
}

#undef QUENCH_QUANTIZATION

}  // namespace quench
