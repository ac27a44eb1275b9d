#include "export/table/tied_head.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/ops/elementwise.h"
#include "core/ops/packed_linear.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/log.h"
#include "export/formats/head_as_table.h"
#include "export/table/open_stored_weights.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRowsAtOnce = 256;

// Rows of a stored matrix, in f32.
class StoredRows {
 public:
  StoredRows(const StoredWeights& weights, std::string_view name)
      : weights_(weights), name_(name), stored_(*weights.find(name)) {
    if (stored_.packed) packed_ = weights.read_packed(name);
  }

  [[nodiscard]] const Shape& shape() const { return stored_.shape; }
  [[nodiscard]] bool readable() const { return stored_.packed || stored_.dtype.has_value(); }

  [[nodiscard]] Tensor read(std::int64_t first, std::int64_t rows) const {
    const Shape shape{rows, stored_.shape[1]};
    Tensor values = Tensor::empty(shape, DType::f32);
    if (stored_.packed) {
      unpack({packed_.narrow_rows(first, rows), values});
    } else {
      const Tensor raw = Tensor::empty(shape, *stored_.dtype);
      weights_.read(name_, raw, first);
      cast({raw, values});
    }
    return values;
  }

 private:
  const StoredWeights& weights_;
  std::string_view name_;
  StoredTensor stored_;
  PackedMatrix packed_;
};

bool has_other_head(const StoredWeights& weights) {
  if (!weights.find(kHeadWeight) || !weights.find(kEmbeddingWeight)) return false;
  const MemoryScope scope(MemoryCategory::workspace);
  const StoredRows head(weights, kHeadWeight), table(weights, kEmbeddingWeight);
  // Reported by the inventory check.
  if (!(head.shape() == table.shape()) || head.shape().rank() != 2 || !head.readable() || !table.readable())
    return true;
  const std::int64_t rows = head.shape()[0];
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, rows - first);
    const Tensor a = head.read(first, count), b = table.read(first, count);
    if (!std::equal(a.data<float>(), a.data<float>() + a.numel(), b.data<float>())) return true;
  }
  return false;
}

// Fingerprint of all files.
std::string fingerprint(const fs::path& folder) {
  std::map<std::string, std::string> files;
  const auto add = [&](const fs::directory_entry& entry) {
    if (entry.is_regular_file())
      files[entry.path().filename().string()] =
          fmt::format("{} {}", entry.file_size(), entry.last_write_time().time_since_epoch().count());
  };
  if (fs::is_directory(folder))
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) add(entry);
  else
    add(fs::directory_entry(folder));  // GGUF file
  std::string text = fs::absolute(folder).string();
  for (const auto& [name, state] : files) text += fmt::format("\n{} {}", name, state);
  return text;
}

}  // namespace

void untie_other_head(const fs::path& folder, Json& config) {
  if (!has_tied_head(config) || stored_weights_path(folder).empty()) return;
  static std::mutex mutex;
  static std::map<std::string, bool> known;  // by fingerprint: equal heads need a full comparison
  const std::lock_guard lock(mutex);
  auto [found, first] = known.try_emplace(fingerprint(folder), false);
  if (first) {
    try {
      found->second = has_other_head(*open_stored_weights(folder, config));
    } catch (...) {
      known.erase(found);
      throw;
    }
    if (found->second)
      QUENCH_LOG_WARN(
          "{}: tie_word_embeddings is true in config.json or by default, but lm_head.weight holds other values than "
          "model.embed_tokens.weight: the two are not tied, as in Transformers; set tie_word_embeddings to false to "
          "silence this warning",
          folder.string());
  }
  if (found->second) config.set("tie_word_embeddings", false);
}

}  // namespace quench
