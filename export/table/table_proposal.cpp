#include "export/table/table_proposal.h"

#include "core/system/log.h"

namespace quench {

std::string table_proposal(const ExportFormat& format, const QuantizationRules& rules, const nn::ModelConfig& model,
                           DType dtype, std::uint64_t file_bytes) {
  const auto megabytes = [](double bytes) { return fmt::format("{:.1f}", bytes / 1e6); };
  const double elements = static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
  const double dense = elements * static_cast<double>(byte_size(dtype)), files = static_cast<double>(file_bytes);
  const Scheme& scheme = *find_scheme("q8_0");
  if (!model.tie_word_embeddings || rules.embeddings != nullptr || 4 * dense < files ||
      !shape_problem(scheme.weights, model.vocab_size, model.hidden_size).empty())
    return {};
  const bool stores = format.tied_embeddings && format.problem(scheme).empty();
  return fmt::format(
      "the embedding table, which is the head too, is {} of {} MB in {}; {} {} (export.embeddings) stores "
      "it in {} MB",
      megabytes(dense), megabytes(files), to_string(dtype), stores ? "--embeddings" : "format gguf with --embeddings",
      scheme.name, megabytes(elements * bits_per_weight(scheme.weights, model.hidden_size) / 8));
}

void propose_table(const ExportFormat& format, const QuantizationRules& rules, const nn::ModelConfig& model,
                   DType dtype, std::uint64_t file_bytes) {
  if (const std::string line = table_proposal(format, rules, model, dtype, file_bytes); !line.empty())
    QUENCH_LOG_INFO("{}", line);
}

}  // namespace quench
