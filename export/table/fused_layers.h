#pragma once
// Parts of a model that inference engines run as one layer, under one scheme: pieces of a parameter (q, k and v; gate
// and up), and all experts of a layer.

#include "export/table/reader_table.h"

namespace quench {

// Name of what runs as one with a linear layer: equal for its parts.
[[nodiscard]] std::string fused_layer(const ModelTensor& tensor);

// Throws bad_config naming the layers if `reader` fuses parts that have different schemes under `rules` (with
// apply_format()). Null: returns warnings of the readers that do. Reads no values.
[[nodiscard]] std::vector<std::string> check_fused_layers(const ExportFormat& format,
                                                          const std::vector<ModelTensor>& tensors,
                                                          const QuantizationRules& rules, const FolderReader* reader);

}  // namespace quench
