#pragma once
// Proposal for the embedding table of a tied model, which a scheme leaves in high precision.

#include <cstdint>
#include <string>

#include "export/table/format.h"

namespace quench {

// One line, if the table takes a quarter or more of the files: "the embedding table, which is the head too, is 57 of
// 116 MB in bf16; --embeddings q8_0 (export.embeddings) stores it in 30 MB". Else empty, also with a scheme for the
// table.
[[nodiscard]] std::string table_proposal(const ExportFormat& format, const QuantizationRules& rules,
                                         const nn::ModelConfig& model, DType dtype, std::uint64_t file_bytes);
// Logs it.
void propose_table(const ExportFormat& format, const QuantizationRules& rules, const nn::ModelConfig& model,
                   DType dtype, std::uint64_t file_bytes);

}  // namespace quench
