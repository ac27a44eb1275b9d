#include "apps/saved_model.h"

#include <algorithm>
#include <cstdio>

#include "apps/common.h"
#include "train/model_folder/model_card.h"

namespace quench {

void print_saved_model(const SavedModel& saved, bool as_json) {
  if (as_json) return print_json(to_json(saved));
  if (is_adapter_format(saved.format)) {
    std::printf("wrote %s (%zu adapted layers)\n", saved.path.c_str(), saved.adapted_layers);
    return;
  }
  const ModelFolderReport& report = saved.report;
  if (saved.rotation)
    std::fputs(fmt::format("  rotated by {} matrices{}\n", saved.rotation->hadamard ? "Hadamard" : "orthogonal",
                           saved.rotation->head_bytes == 0
                               ? ""
                               : fmt::format("; the head, tied to the embedding table before, is a weight of its own: "
                                             "{:.2f} MiB more in high precision",
                                             static_cast<double>(saved.rotation->head_bytes) / (1 << 20)))
                   .c_str(),
               stdout);
  if (saved.plan) std::fputs(to_text(*saved.plan).c_str(), stdout);
  if (!report.layers.empty()) std::fputs(to_text(report.layers).c_str(), stdout);
  if (report.perplexity) {
    const std::string before =
        report.perplexity_before ? fmt::format(" (before quantization {:.4f})", *report.perplexity_before) : "";
    std::printf("perplexity %.4f%s\n", *report.perplexity, before.c_str());
  }
  if (!saved.kv_cache.empty()) std::printf("KV cache of readers: %s\n", saved.kv_cache.c_str());
  const std::string how = saved.scheme.empty() ? "" : fmt::format(", {} as {}", saved.scheme, saved.format);
  std::fputs(fmt::format("wrote {} ({}{}, {} parameters, {})\n", saved.path.string(), to_string(saved.dtype), how,
                         saved.parameters, size_text(report.file_bytes))
                 .c_str(),
             stdout);
}

std::string option_of(std::string_view member) {
  std::string name(member == "rules" ? "rule" : member);
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

}  // namespace quench
