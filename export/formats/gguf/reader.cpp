#include "export/formats/gguf/reader.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "core/ops/elementwise.h"
#include "core/system/log_once.h"
#include "export/formats/gguf/experts.h"
#include "export/formats/gguf/latent_attention.h"
#include "export/formats/gguf/names.h"
#include "export/formats/gguf/parts.h"
#include "export/formats/gguf/rope.h"
#include "export/formats/gguf/row_order.h"
#include "export/formats/gguf/types.h"
#include "nn/spec/model_config.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFirstBytes = std::uint64_t{1} << 20, kMostBytes = std::uint64_t{1} << 28;  // bytes of a header

std::vector<std::uint8_t> read_front(std::ifstream& file, std::uint64_t bytes) {
  std::vector<std::uint8_t> front(bytes);
  file.clear();
  file.seekg(0);
  file.read(reinterpret_cast<char*>(front.data()), static_cast<std::streamsize>(bytes));
  return front;
}

class GgufWeights final : public StoredWeights {
 public:
  GgufWeights(const fs::path& file, const Json& config)
      : path_(file), config_(nn::parse_model_config(config, file.string())), head_(read_gguf_head(file)) {
    const Json& architecture = head_.metadata["general.architecture"];
    const GgufArchitecture* known = find_gguf_architecture(config_.model_type);
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    known != nullptr && architecture.is_string() && architecture.as_string() == known->name,
                    "{}: architecture {} does not go with a model of type '{}'", file.string(), architecture.dump(),
                    config_.model_type);
    interleaved_ = known->interleaved_rotation;
    norm_offset_ = known->norm_offset;
    for (const GgufEntry& entry : head_.tensors) {
      if (entry.name == kRopeDivisors || entry.name == kShortDivisors || entry.name == kLongDivisors)
        continue;  // derived from the config
      if (is_scale(entry)) continue;
      std::vector<GgufExpert> each = gguf_experts_of(entry, config_.experts, file.string());
      for (GgufExpert& expert : each) tensors_.emplace(std::move(expert.name), std::move(expert.entry));
      if (each.empty()) tensors_.emplace(hf_tensor_name(entry.name, *known).value_or(entry.name), entry);
    }
    if (known->latent_attention) join_latent_attention();
  }

  [[nodiscard]] std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, entry] : tensors_) names.push_back(name);
    return names;
  }

  [[nodiscard]] std::optional<StoredTensor> find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return std::nullopt;
    const GgufTypeLayout layout = *gguf_type_layout(found->second.type);
    return StoredTensor{found->second.shape, layout.blocks.has_value(), layout.plain ? "plain" : "blocks",
                        layout.plain};
  }

  void read(std::string_view name, const Tensor& out, std::int64_t first_row) const override {
    const GgufEntry& entry = tensors_.find(name)->second;
    if (const auto latent = latent_.find(name); latent != latent_.end())
      return read_latent(latent->second, out, first_row);
    const std::int64_t heads = interleaved_ ? rotated_heads(name, config_) : 0;
    const float offset = is_norm(name) ? norm_offset_ : 0.0f;
    const bool all = entry.shape[0] == out.size(0);
    const Tensor raw = all && heads == 0 ? out : Tensor::empty(entry.shape, out.dtype());
    read_gguf_tensor(path_, entry, raw);
    if (offset != 0.0f) subtract(raw, offset, entry.name);
    if (all && heads == 0) return;
    const Tensor ordered = heads > 0 ? separate_heads(raw, heads) : raw;
    Tensor(out).copy_from(ordered.narrow(0, first_row, out.size(0)));
  }

  [[nodiscard]] PackedMatrix read_packed(std::string_view name) const override {
    const GgufEntry& entry = tensors_.find(name)->second;
    QUENCH_CHECK_AS(ErrorCode::unsupported, entry.shape.rank() == 2, "{}: {} has blocks and shape {}", path_.string(),
                    entry.name, entry.shape.to_string());
    const BlockType type = *gguf_type_layout(entry.type)->blocks;
    const MemoryScope scope(MemoryCategory::workspace);
    Tensor blocks = Tensor::empty({entry.shape[0], static_cast<std::int64_t>(entry.bytes) / entry.shape[0]}, DType::u8);
    read_gguf_tensor(path_, entry, blocks);
    if (const std::int64_t heads = interleaved_ ? rotated_heads(name, config_) : 0; heads > 0)
      blocks = separate_heads(blocks, heads);
    const PackedMatrix packed =
        pack_blocks(blocks, type, entry.shape[1], fmt::format("{}: {}", path_.string(), entry.name));
    const auto scale = scales_.find(entry.name);
    return scale == scales_.end() ? packed : scaled(packed, scale->second);
  }

  [[nodiscard]] std::optional<OperandScheme> inputs(std::string_view) const override { return std::nullopt; }

 private:
  // Scale of a whole matrix of blocks, "attn_q.scale" of "attn_q.weight" (NVFP4, BitNet), which is taken over, or of
  // its inputs, which has no use here.
  bool is_scale(const GgufEntry& entry) {
    constexpr std::string_view kScale = ".scale", kInputScale = ".input_scale";
    const auto matrix = [&](std::string_view suffix) -> const GgufEntry* {
      if (!entry.name.ends_with(suffix)) return nullptr;
      const std::string name = entry.name.substr(0, entry.name.size() - suffix.size()) + ".weight";
      const auto found = std::ranges::find(head_.tensors, name, &GgufEntry::name);
      return found == head_.tensors.end() || !gguf_type_layout(found->type)->blocks ? nullptr : &*found;
    };
    if (matrix(kInputScale) != nullptr) return true;
    const GgufEntry* scaled_one = matrix(kScale);
    if (scaled_one == nullptr) return false;
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    entry.shape.numel() == 1 && gguf_type_layout(entry.type)->plain == DType::f32,
                    "{}: {} has shape {} and type {}; one scale of a matrix in F32 can be read", path_.string(),
                    entry.name, entry.shape.to_string(), gguf_type_name(entry.type));
    const Tensor value = Tensor::empty(entry.shape, DType::f32);
    read_gguf_tensor(path_, entry, value);
    QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(value.data<float>()[0]), "{}: {} is {}", path_.string(),
                    entry.name, value.data<float>()[0]);
    scales_.emplace(scaled_one->name, value.data<float>()[0]);
    return true;
  }

  static PackedMatrix scaled(const PackedMatrix& packed, float factor) {
    const auto times = [factor](const Tensor& x) {
      if (!x.defined()) return x;
      const Tensor wide = Tensor::empty(x.shape(), DType::f32);
      cast({x, wide});
      for (std::int64_t i = 0; i < wide.numel(); ++i) wide.data<float>()[i] *= factor;
      return wide;
    };
    return {packed.group_size(), packed.codes(), times(packed.scales()), times(packed.offsets())};
  }

  struct LatentPair {
    GgufEntry keys, values;
  };

  // kv_b_proj in place of attn_k_b and attn_v_b.
  void join_latent_attention() {
    const nn::MlaSpec& mla = *config_.block(0).attention.mla;
    const std::int64_t heads = config_.num_attention_heads;
    for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      const auto keys = tensors_.find(fmt::format("blk.{}{}", layer, kGgufKeys)),
                 values = tensors_.find(fmt::format("blk.{}{}", layer, kGgufValues));
      if (keys == tensors_.end() || values == tensors_.end()) continue;
      const std::pair expected{Shape{heads, mla.kv_rank, mla.nope_dim}, Shape{heads, mla.value_dim, mla.kv_rank}};
      for (const auto& [entry, shape] :
           {std::pair(&keys->second, expected.first), std::pair(&values->second, expected.second)}) {
        QUENCH_CHECK_AS(ErrorCode::corrupt, entry->shape == shape, "{}: {} has shape {}, expected {}", path_.string(),
                        entry->name, entry->shape.to_string(), shape.to_string());
        QUENCH_CHECK_AS(ErrorCode::unsupported,
                        gguf_type_layout(entry->type)->plain && entry->type == keys->second.type,
                        "{}: {} has type {}; {} and {} can be read in one of F32, F16, BF16", path_.string(),
                        entry->name, gguf_type_name(entry->type), kGgufKeys.substr(1), kGgufValues.substr(1));
      }
      const std::string name = fmt::format("model.layers.{}{}", layer, kHfKeyValue);
      GgufEntry joined = keys->second;
      joined.shape = {heads * (mla.nope_dim + mla.value_dim), mla.kv_rank};
      tensors_.emplace(name, joined);
      latent_.emplace(name, LatentPair{keys->second, values->second});
      tensors_.erase(keys);
      tensors_.erase(values);
    }
  }

  void read_latent(const LatentPair& pair, const Tensor& out, std::int64_t first_row) const {
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor keys = Tensor::empty(pair.keys.shape, out.dtype()),
                 values = Tensor::empty(pair.values.shape, out.dtype());
    read_gguf_tensor(path_, pair.keys, keys);
    read_gguf_tensor(path_, pair.values, values);
    Tensor(out).copy_from(
        joined_latent(keys, values, *config_.block(0).attention.mla).narrow(0, first_row, out.size(0)));
  }

  void subtract(const Tensor& weight, float offset, const std::string& name) const {
    QUENCH_CHECK_AS(ErrorCode::unsupported, weight.dtype() == DType::f32, "{}: {} is {}, expected a norm in f32",
                    path_.string(), name, weight.describe());
    for (std::int64_t i = 0; i < weight.numel(); ++i) weight.data<float>()[i] -= offset;
  }

  fs::path path_;
  nn::ModelConfig config_;
  GgufHead head_;
  bool interleaved_ = false;
  float norm_offset_ = 0.0f;
  std::map<std::string, GgufEntry, std::less<>> tensors_;
  std::map<std::string, float> scales_;                    // by GGUF name of the matrix
  std::map<std::string, LatentPair, std::less<>> latent_;  // halves of kv_b_proj
};

}  // namespace

bool is_gguf_path(const fs::path& path) {
  std::error_code ignored;
  return path.extension() == ".gguf" && fs::is_regular_file(path, ignored);
}

fs::path find_gguf_file(const fs::path& folder) {
  if (is_gguf_path(folder)) return folder;
  if (!fs::is_directory(folder)) return {};
  std::set<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (is_gguf_path(entry.path())) files.insert(entry.path());
  std::vector<std::string> projectors;
  fs::path found;
  for (const fs::path& file : files) {
    const auto part = gguf_part_name(file), part_found = gguf_part_name(found);
    if (file.filename().string().find("mmproj") != std::string::npos) {
      projectors.push_back(file.filename().string());
    } else if (!part || !part_found || part->file(1) != part_found->file(1)) {
      QUENCH_CHECK_AS(ErrorCode::bad_config, found.empty(),
                      "{} holds several GGUF files, {} and {}: put the one to read into a folder of its own, or name "
                      "the file",
                      folder.string(), found.filename().string(), file.filename().string());
      found = file;
    }
  }
  if (found.empty()) return projectors.empty() ? fs::path() : folder / projectors.front();
  if (!projectors.empty())
    QUENCH_LOG_INFO_ONCE("{}: encoders of images or sound are passed over: {}", folder.string(),
                         fmt::join(projectors, ", "));
  return found;
}

namespace {

GgufHead read_head_of_file(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  // Opening a FIFO would block.
  QUENCH_CHECK_AS(ErrorCode::io, !fs::exists(status) || fs::is_regular_file(status), "{} is not a regular file",
                  path.string());
  std::ifstream file(path, std::ios::binary);
  QUENCH_CHECK_AS(ErrorCode::not_found, file.is_open(), "cannot open {}", path.string());
  const std::uint64_t size = fs::file_size(path);
  for (std::uint64_t bytes = kFirstBytes;; bytes *= 4) {
    const std::uint64_t now = std::min(bytes, size);
    const std::vector<std::uint8_t> front = read_front(file, now);
    QUENCH_CHECK_AS(ErrorCode::io, file.good(), "cannot read {}", path.string());
    if (auto head = parse_gguf_head(front, size, path.string())) return std::move(*head);
    QUENCH_CHECK_AS(ErrorCode::corrupt, now < size, "{}: not a valid GGUF file: it ends within its head",
                    path.string());
    QUENCH_CHECK_AS(ErrorCode::corrupt, now < kMostBytes, "{}: not a valid GGUF file: its head has more than {} bytes",
                    path.string(), kMostBytes);
  }
}

}  // namespace

GgufHead read_gguf_head(const fs::path& file) {
  GgufHead head = read_head_of_file(file);
  add_gguf_parts(file, head, read_head_of_file);
  return head;
}

void read_gguf_tensor(const fs::path& first, const GgufEntry& entry, const Tensor& out) {
  const fs::path path = gguf_file_of(first, entry);
  QUENCH_CHECK(out.nbytes() == entry.bytes, "{}: {} bytes for {}", entry.name, out.nbytes(), entry.bytes);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(entry.begin));
  file.read(static_cast<char*>(out.raw_data()), static_cast<std::streamsize>(entry.bytes));
  QUENCH_CHECK_AS(ErrorCode::io, file.good(), "{}: cannot read {}", path.string(), entry.name);
}

std::unique_ptr<StoredWeights> open_gguf(const fs::path& file, const Json& config) {
  return std::make_unique<GgufWeights>(file, config);
}

}  // namespace quench
