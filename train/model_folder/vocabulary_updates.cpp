#include "train/model_folder/vocabulary_updates.h"

#include <algorithm>
#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/system/check.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/peft_names.h"

namespace quench {
namespace {

using namespace peft_names;

struct UpdateName {
  std::string_view module, a, b;
};
constexpr std::array<UpdateName, 2> kUpdateNames = {
    {{nn::kHeadName, ".lora_A.weight", ".lora_B.weight"}, {kTable, ".lora_embedding_A", ".lora_embedding_B"}}};

const UpdateName& names_of(std::string_view module) {
  return module == kTable ? kUpdateNames[1] : kUpdateNames[0];
}

std::string fault_of(const SafetensorsEntry& entry, const Shape& expected, std::int64_t rank) {
  if (!(entry.shape == expected))
    return fmt::format("{} has shape {}; expected {} for rank {}", entry.name, entry.shape.to_string(),
                       expected.to_string(), rank);
  if (entry.dtype != DType::f32 && entry.dtype != DType::bf16 && entry.dtype != DType::f16)
    return fmt::format("{} has dtype {}; F32, BF16 and F16 can be loaded", entry.name, entry.dtype_name);
  return {};
}

}  // namespace

bool take_update(const SafetensorsEntry& entry, VocabularyUpdates& updates) {
  for (const auto& [module, a, b] : kUpdateNames) {
    const std::string name = std::string(kPrefix) + std::string(module);
    if (entry.name == name + std::string(a)) {
      updates[std::string(module)].a = &entry;
      return true;
    }
    if (entry.name == name + std::string(b)) {
      updates[std::string(module)].b = &entry;
      return true;
    }
  }
  return false;
}

std::vector<std::string> update_faults(const nn::ModelConfig& model, const PeftConfig& config,
                                       const VocabularyUpdates& updates, const std::filesystem::path& file) {
  std::vector<std::string> faults;
  if (updates.empty()) return faults;
  std::string modules;
  for (const auto& [module, update] : updates) modules += (modules.empty() ? "" : ", ") + module;
  QUENCH_CHECK_AS(ErrorCode::unsupported, !model.tie_word_embeddings,
                  "{}: adapters of {} were trained apart from the weight that embedding and head share in this model "
                  "(tie_word_embeddings); load the adapter over an untied model",
                  file.string(), modules);
  QUENCH_CHECK_AS(ErrorCode::unsupported, !config.dora,
                  "{}: DoRA (use_dora) of {} is not supported; merge the adapter with PEFT (merge_and_unload)",
                  file.string(), modules);
  for (const auto& [module, update] : updates) {
    const UpdateName& names = names_of(module);
    if (update.a == nullptr || update.b == nullptr) {
      faults.push_back(fmt::format("{} has no {}", module, (update.a == nullptr ? names.a : names.b).substr(1)));
      continue;
    }
    const std::int64_t rank = config.rank_of(module), rows = model.vocab_size, width = model.hidden_size;
    const bool is_table = module == kTable;
    for (std::string& fault : std::array{fault_of(*update.a, {rank, is_table ? rows : width}, rank),
                                         fault_of(*update.b, {is_table ? width : rows, rank}, rank)})
      if (!fault.empty()) faults.push_back(std::move(fault));
  }
  return faults;
}

void load_update(nn::CausalLm& model, const SafetensorsReader& weights, std::string_view module,
                 const VocabularyUpdate& update, double scale, Tensor value) {
  const std::vector<nn::Parameter*> all = vocabulary_parameters(model);
  const auto own = std::ranges::find_if(all, [&](const nn::Parameter* parameter) {
    return parameter->name == std::string(module) + std::string(kWeight);
  });
  QUENCH_CHECK_AS(ErrorCode::unsupported, own != all.end() && (*own)->variable.value().shape() == value.shape(),
                  "{}: the adapter of {} cannot be added to the quantized weight of the model; load it over the "
                  "unquantized one",
                  weights.path().string(), module);
  const MemoryScope scope(MemoryCategory::workspace);
  const auto matrix = [&](const SafetensorsEntry& entry) {
    Tensor loaded = Tensor::empty(entry.shape, DType::f32);
    load_tensor(weights, entry, loaded);
    return loaded;
  };
  const Tensor sum = Tensor::empty(value.shape(), DType::f32), rounded = Tensor::empty(value.shape(), value.dtype());
  const Tensor a = matrix(*update.a), b = matrix(*update.b);
  cast({(*own)->variable.value().to(Device{}), sum});
  const bool is_table = module == kTable;
  gemm({.a = is_table ? a : b,
        .b = is_table ? b : a,
        .c = sum,
        .transpose_a = is_table,
        .transpose_b = is_table,
        .alpha = static_cast<float>(scale),
        .beta = 1});
  cast({sum, rounded});
  value.copy_from(rounded);
}

}  // namespace quench
