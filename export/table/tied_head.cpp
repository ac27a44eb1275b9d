#include "export/table/tied_head.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "core/ops/elementwise.h"
#include "core/ops/packed_linear.h"
#include "core/safetensors/safetensors_folder.h"
#include "core/system/log.h"
#include "export/formats/renamed_weights.h"
#include "export/table/open_stored_weights.h"
#include "nn/spec/model_family.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHead = "lm_head.weight", kTable = "model.embed_tokens.weight";
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
  if (!weights.find(kHead) || !weights.find(kTable)) return false;
  const MemoryScope scope(MemoryCategory::workspace);
  const StoredRows head(weights, kHead), table(weights, kTable);
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

// Of all files.
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

// As config.json says, or by default in its family.
bool is_tied(const Json& config) {
  if (!config.is_object()) return false;
  const Json* tied = config.find("tie_word_embeddings");
  if (tied != nullptr && tied->is_bool()) return tied->as_bool();
  const Json* classes = config.find("architectures");
  const Json* name = classes != nullptr && classes->is_array() && !classes->as_array().empty()
                         ? &classes->as_array().front()
                         : config.find("model_type");
  const nn::ModelFamily* family =
      name != nullptr && name->is_string() ? nn::find_model_family(name->as_string()) : nullptr;
  return (tied == nullptr || tied->is_null()) && family != nullptr && family->defaults.tie_word_embeddings;
}

// lm_head.weight under the table's name.
class HeadAsTable final : public RenamedWeights {
 public:
  using RenamedWeights::RenamedWeights;

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names = weights_->names();
    std::ranges::replace(names, kHead, kTable);
    return names;
  }
  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    return name == kHead ? std::nullopt : RenamedWeights::find(name);
  }

 private:
  [[nodiscard]] std::string stored(std::string_view name) const override {
    return std::string(name == kTable ? kHead : name);
  }
};

}  // namespace

std::unique_ptr<StoredWeights> head_as_table(std::unique_ptr<StoredWeights> weights, const Json& config) {
  if (!is_tied(config) || weights->find(kTable) || !weights->find(kHead)) return weights;
  return std::make_unique<HeadAsTable>(std::move(weights));
}

void untie_other_head(const fs::path& folder, Json& config) {
  if (!is_tied(config) || stored_weights_path(folder).empty()) return;
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
