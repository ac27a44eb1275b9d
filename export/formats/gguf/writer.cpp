#include "export/formats/gguf/writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "core/gguf_types/bit_layouts.h"
#include "core/number/float4.h"
#include "core/ops/elementwise.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "export/formats/export_mark.h"
#include "export/formats/gguf/experts.h"
#include "export/formats/gguf/latent_attention.h"
#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/names.h"
#include "export/formats/gguf/query_scale.h"
#include "export/formats/gguf/rope.h"
#include "export/formats/gguf/row_order.h"
#include "export/formats/gguf/tokenizer.h"
#include "export/formats/gguf/types.h"
#include "export/schemes/finite_values.h"

namespace quench {
namespace {

using Metadata = std::vector<std::pair<std::string, GgufValue>>;

std::optional<BlockType> blocks_of(const OperandScheme& scheme) {
  if (scheme.blocks) return scheme.blocks;
  if (has_few_levels(scheme.mapping) && scheme.group_size == kSuperBlock)
    return scheme.mapping == IntMapping::stretched ? BlockType::q2_k : BlockType::tq2_0;
  if (scheme.sharing != ScaleSharing::group || scheme.group_size != 32 || !scheme.symmetric()) return std::nullopt;
  if (!scheme.element) {
    if (scheme.bits == 8) return BlockType::q8_0;
    if (scheme.bits <= 4) return BlockType::q4_0;
    return std::nullopt;
  }
  if (scheme.element == ElementFormat::e2m1 && scheme.scale == ScaleForm::e8m0) return BlockType::mxfp4;
  return std::nullopt;
}

// 256 codes under one scale.
void put_super_block(const std::int8_t* codes, float16 scale, BlockType type, std::uint8_t* block) {
  std::uint8_t digits[kSuperBlock];
  const bool odd = type == BlockType::q2_k;
  for (int i = 0; i < kSuperBlock; ++i) digits[i] = static_cast<std::uint8_t>(odd ? (codes[i] + 3) / 2 : codes[i] + 1);
  if (odd) {
    // digit * (2 * scale) - 3 * scale, exact in f32
    constexpr std::uint8_t kScaleAndMinimum = 2 | 3 << 4;
    std::memset(block, kScaleAndMinimum, 16);
    put_quarters<0>(digits, block + 16);
    std::memcpy(block + 80, &scale.bits, sizeof scale.bits);
    std::memcpy(block + 82, &scale.bits, sizeof scale.bits);
    return;
  }
  put_quarters<0>(digits, block);
  std::memcpy(block + 64, &scale.bits, sizeof scale.bits);
}

// The values of a group and their scale.
void put_block(const QuantizedWeight& q, BlockType type, std::int64_t group, std::uint8_t* block) {
  const std::int64_t at = group * block_format(type).elements;
  if (block_format(type).elements == kSuperBlock)
    return put_super_block(q.codes.data<std::int8_t>() + at, q.scales.data<float16>()[group], type, block);
  if (type == BlockType::mxfp4) {
    const auto* packed = static_cast<const std::uint8_t*>(q.codes.raw_data()) + at / 2;
    const auto code = [&](int i) { return static_cast<std::uint8_t>(packed[i / 2] >> (i % 2 * 4) & 0xF); };
    block[0] = static_cast<const std::uint8_t*>(q.scales.raw_data())[group];
    for (int j = 0; j < 16; ++j) block[1 + j] = pack_nibbles(code(j), code(j + 16));
    return;
  }
  const std::uint16_t scale = q.scales.data<float16>()[group].bits;
  std::memcpy(block, &scale, sizeof scale);
  const std::int8_t* codes = q.codes.data<std::int8_t>() + at;
  if (type == BlockType::q8_0) {
    std::memcpy(block + 2, codes, 32);
    return;
  }
  const auto nibble = [&](int i) { return static_cast<std::uint8_t>(codes[i] + 8); };
  for (int j = 0; j < 16; ++j) block[2 + j] = pack_nibbles(nibble(j), nibble(j + 16));
}

Tensor blocks_from_codes(const QuantizedWeight& q, BlockType type) {
  const BlockFormat& format = block_format(type);
  const std::int64_t blocks = q.shape[1] / format.elements;
  const Tensor out = Tensor::empty({q.shape[0], blocks * format.bytes}, DType::u8);
  for (std::int64_t i = 0; i < q.shape[0] * blocks; ++i)
    put_block(q, type, i, out.data<std::uint8_t>() + i * format.bytes);
  return out;
}

// With the source of its bytes.
struct Entry {
  GgufTensor head;
  std::function<Tensor()> bytes;
};

GgufTensor head_of(std::string name, const Shape& shape, std::uint32_t type, std::uint64_t bytes) {
  GgufTensor head{.name = std::move(name), .type = type, .bytes = bytes};
  for (int axis = shape.rank() - 1; axis >= 0; --axis)
    head.dimensions.push_back(static_cast<std::uint64_t>(shape[axis]));
  return head;
}

// (x + offset) * factor in f32, rounded once.
Tensor shifted(const Tensor& x, float offset, float factor, DType dtype, std::string_view name) {
  const Tensor wide = Tensor::empty(x.shape(), DType::f32);
  cast({x, wide});
  for (std::int64_t i = 0; i < wide.numel(); ++i) wide.data<float>()[i] = (wide.data<float>()[i] + offset) * factor;
  if (dtype == DType::f32) return wide;
  const Tensor out = Tensor::empty(x.shape(), dtype);
  cast({wide, out});
  require_finite(out, wide, name);
  return out;
}

// Routers, as in llama.cpp's converter.
bool is_kept_f32(const std::string& name, const Shape& shape) {
  return shape.rank() == 1 || name.find(".ffn_gate_inp.") != std::string::npos;
}

Entry entry_of(const ModelTensor& tensor, const ExportJob& job, const GgufArchitecture& architecture) {
  const auto name = tensor.parameter->experts > 0 ? gguf_experts_name(tensor.name, job.config.experts)
                                                  : gguf_tensor_name(tensor.name, architecture);
  QUENCH_CHECK_AS(ErrorCode::unsupported, name.has_value(), "GGUF has no name for {}", tensor.name);
  const std::int64_t heads = architecture.interleaved_rotation ? rotated_heads(tensor.name, job.config) : 0;
  const auto ordered = [heads](const Tensor& rows) { return heads > 0 ? interleave_heads(rows, heads) : rows; };
  if (tensor.quantized != nullptr) {
    const BlockType type = *blocks_of(tensor.quantized->scheme);
    const BlockFormat& format = block_format(type);
    const auto bytes = static_cast<std::uint64_t>(tensor.shape.numel() / format.elements * format.bytes);
    return {head_of(*name, tensor.shape, format.ggml_type, bytes), [ordered, type, q = tensor.quantized] {
              return ordered(q->scheme.blocks ? q->codes : blocks_from_codes(*q, type));
            }};
  }
  const DType dtype = is_kept_f32(*name, tensor.shape) ? DType::f32 : tensor.dtype;
  const auto bytes = static_cast<std::uint64_t>(tensor.shape.numel() * byte_size(dtype));
  const float offset = is_norm(tensor.name) ? architecture.norm_offset : 0.0f;
  return {head_of(*name, tensor.shape, gguf_type_of(dtype), bytes),
          [ordered, dtype, offset, factor = tensor.factor, value = tensor.value, hf_name = tensor.name] {
            const Tensor stored = ordered(value());
            if (offset != 0.0f || factor != 1.0f) return shifted(stored, offset, factor, dtype, hf_name);
            if (stored.dtype() == dtype) return stored;
            const Tensor converted = Tensor::empty(stored.shape(), dtype);
            cast({stored, converted});
            return converted;
          }};
}

// Experts of one projection, expert 0 first.
Entry experts_entry(std::vector<Entry> each) {
  Entry all{each.front().head, nullptr};
  for (const Entry& one : each)
    QUENCH_CHECK_AS(ErrorCode::unsupported, one.head.type == all.head.type,
                    "{}: an expert has type {}, another {}; GGUF has all experts of a projection in one tensor",
                    all.head.name, gguf_type_name(one.head.type), gguf_type_name(all.head.type));
  all.head.dimensions.push_back(each.size());
  all.head.bytes *= each.size();
  all.bytes = [each = std::move(each)] {
    const MemoryScope scope(MemoryCategory::workspace);
    const auto size = static_cast<std::int64_t>(each.front().head.bytes);
    const Tensor out = Tensor::empty({static_cast<std::int64_t>(each.size()), size}, DType::u8);
    for (std::size_t i = 0; i < each.size(); ++i) {
      const Tensor one = each[i].bytes();
      QUENCH_CHECK(one.nbytes() == each[i].head.bytes, "{}: {} bytes, expected {}", each[i].head.name, one.nbytes(),
                   each[i].head.bytes);
      std::memcpy(out.data<std::uint8_t>() + static_cast<std::int64_t>(i) * size, one.raw_data(), one.nbytes());
    }
    return out;
  };
  return all;
}

// attn_k_b and attn_v_b.
std::array<Entry, 2> latent_entries(const ModelTensor& tensor, const nn::ModelConfig& config) {
  const nn::MlaSpec mla = *config.block(0).attention.mla;
  const std::int64_t heads = config.num_attention_heads;
  const std::string layer = tensor.name.substr(0, tensor.name.size() - kHfKeyValue.size());
  const std::string name = "blk." + layer.substr(layer.rfind('.') + 1);
  const auto entry = [&](std::string_view suffix, const Shape& shape, auto part) {
    return Entry{head_of(name + std::string(suffix), shape, gguf_type_of(tensor.dtype),
                         static_cast<std::uint64_t>(shape.numel() * byte_size(tensor.dtype))),
                 [value = tensor.value, mla, heads, part] { return part(value(), mla, heads); }};
  };
  return {entry(kGgufKeys, {heads, mla.kv_rank, mla.nope_dim}, latent_keys),
          entry(kGgufValues, {heads, mla.value_dim, mla.kv_rank}, latent_values)};
}

std::vector<Entry> entries_of(const ExportJob& job, const GgufArchitecture& architecture) {
  std::vector<Entry> entries;
  std::map<std::string, std::vector<Entry>> experts;  // entries of the current parameter, by name
  const nn::Parameter* parameter = nullptr;
  const auto finish_experts = [&] {
    for (auto& [name, each] : experts) entries.push_back(experts_entry(std::move(each)));
    experts.clear();
  };
  for (const ModelTensor& tensor : job.tensors) {
    if (tensor.parameter != parameter) finish_experts();
    parameter = tensor.parameter;
    if (architecture.latent_attention && tensor.name.ends_with(kHfKeyValue)) {
      std::ranges::move(latent_entries(tensor, job.config), std::back_inserter(entries));
      continue;
    }
    Entry entry = entry_of(tensor, job, architecture);
    if (tensor.parameter->experts > 0)
      experts[entry.head.name].push_back(std::move(entry));
    else
      entries.push_back(std::move(entry));
  }
  finish_experts();
  return entries;
}

void add_rope(const nn::ModelConfig& config, const std::string& prefix, Metadata& metadata,
              std::vector<Entry>& entries) {
  const GgufRope rope = gguf_rope(config);
  if (rope.rounded)
    QUENCH_LOG_WARN(
        "GGUF: llama.cpp rounds the bounds of YaRN to whole dimensions, the model does not: frequencies in "
        "between differ slightly there");
  for (const auto& [key, value] : rope.metadata) metadata.emplace_back(prefix + key, value);
  for (const auto& [name, values] : {std::pair(kRopeDivisors, rope.divisors.all),
                                     {kShortDivisors, rope.divisors.shorter},
                                     {kLongDivisors, rope.divisors.longer}}) {
    if (values.empty()) continue;
    const Tensor divisors = Tensor::from_values<float>({static_cast<std::int64_t>(values.size())}, values);
    entries.push_back({head_of(std::string(name), divisors.shape(), gguf_type_of(DType::f32), divisors.nbytes()),
                       [divisors] { return divisors; }});
  }
}

Metadata describe_model(const ExportJob& job, const GgufArchitecture& architecture, std::uint32_t file_type,
                        bool quantized) {
  const nn::ModelConfig& config = job.config;
  const nn::BlockSpec block = config.block(0);
  const std::string prefix = std::string(architecture.name) + ".";
  Metadata metadata;
  const auto number = [&](const std::string& key, std::int64_t value) {
    metadata.emplace_back(prefix + key, static_cast<std::uint32_t>(value));
  };
  const auto set = [&](const std::string& key, GgufValue value) {
    std::erase_if(metadata, [&](const auto& entry) { return entry.first == prefix + key; });
    metadata.emplace_back(prefix + key, std::move(value));
  };
  metadata.emplace_back("general.architecture", std::string(architecture.name));
  metadata.emplace_back("general.type", std::string("model"));
  metadata.emplace_back(kGgufExportMark, true);
  metadata.emplace_back("general.name", config.model_type);
  metadata.emplace_back("general.file_type", file_type);
  if (quantized) metadata.emplace_back("general.quantization_version", std::uint32_t{2});
  number("context_length", config.max_position_embeddings);
  number("embedding_length", config.hidden_size);
  number("block_count", config.num_hidden_layers);
  number("feed_forward_length", config.intermediate_size);
  number("attention.head_count", block.attention.heads);
  number("attention.head_count_kv", block.attention.kv_heads);
  number("attention.key_length", block.attention.key_dim);
  number("attention.value_length", block.attention.value_dim);
  metadata.emplace_back(prefix + "attention.layer_norm_rms_epsilon", block.attention.norm.form.eps);
  number("vocab_size", config.vocab_size);
  if (architecture.numbers != nullptr)
    for (const GgufNumber& one : architecture.numbers(config))
      std::visit([&](auto value) { set(std::string(one.key), value); }, one.value);
  return metadata;
}

// Phi-4 has not the tokens of Phi-3.
void name_by_tokens(const GgufArchitecture& architecture, Metadata& metadata) {
  const auto find = [&](std::string_view key) {
    return std::ranges::find(metadata, key, &Metadata::value_type::first);
  };
  const auto list = find("tokenizer.ggml.tokens");
  if (list == metadata.end()) return;
  const auto& tokens = std::get<std::vector<std::string>>(list->second);
  const bool complete = std::ranges::all_of(architecture.tokens_of_name, [&](std::string_view token) {
    return std::ranges::find(tokens, token) != tokens.end();
  });
  if (!complete) find("general.name")->second = std::string("model");
}

// That of the mix, else of the type of most elements.
std::uint32_t main_file_type(const std::vector<ModelTensor>& tensors, const Scheme* scheme) {
  if (scheme != nullptr && scheme->mix != nullptr) return scheme->mix->file_type;
  std::map<BlockType, std::int64_t> elements;
  DType dtype = DType::f32;
  for (const ModelTensor& tensor : tensors) {
    if (tensor.quantized != nullptr) elements[*blocks_of(tensor.quantized->scheme)] += tensor.shape.numel();
    dtype = tensor.dtype;
  }
  if (elements.empty()) return gguf_type_layout(gguf_type_of(dtype))->file_type;
  const auto most = std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
  return block_format(most->first).file_type;
}

}  // namespace

std::string gguf_problem(const Scheme& scheme) {
  if (scheme.inputs) return "it says nothing of inputs";
  if (!blocks_of(scheme.weights)) return "it has no such blocks; q8_0, q4_k_m and the like are its own";
  return {};
}

std::string_view gguf_kept(const ModelTensor& tensor) {
  return tensor.name.ends_with(kHfKeyValue) ? "llama.cpp has it as two matrices, one of them transposed" : "";
}

void require_gguf_model(const nn::ModelConfig& config) {
  const GgufArchitecture* architecture = find_gguf_architecture(config.model_type);
  QUENCH_CHECK_AS(ErrorCode::unsupported, architecture != nullptr, "GGUF export of model type '{}' is not supported",
                  config.model_type);
  QUENCH_CHECK_AS(ErrorCode::unsupported, config.rope.type != nn::RopeScaling::Type::dynamic,
                  "GGUF has no dynamic RoPE scaling");
  for (const nn::BlockSpec& block : config.blocks)
    QUENCH_CHECK_AS(ErrorCode::unsupported,
                    architecture->sliding_window || block.attention.window == 0 ||
                        block.attention.window >= config.context_length(),
                    "GGUF cannot store the sliding window of {} tokens", block.attention.window);
  const std::string problem = architecture->problem != nullptr ? architecture->problem(config) : "";
  QUENCH_CHECK_AS(ErrorCode::unsupported, problem.empty(), "GGUF of architecture {}: {}", architecture->name, problem);
  const nn::AttentionSpec attention = config.block(0).attention;
  QUENCH_CHECK_AS(ErrorCode::unsupported, architecture->longrope || config.rope.type != nn::RopeScaling::Type::longrope,
                  "llama.cpp's architecture {} does not support RoPE scaling longrope", architecture->name);
  QUENCH_CHECK_AS(ErrorCode::unsupported, architecture->rope_divisors || gguf_rope(config).divisors.all.empty(),
                  "llama.cpp's architecture {} does not support this RoPE scaling; it has linear, and yarn with "
                  "beta_fast 32, beta_slow 1 and whole bounds",
                  architecture->name);
  QUENCH_CHECK_AS(
      ErrorCode::unsupported,
      architecture->free_head_dim || architecture->latent_attention || attention.query_width() == config.hidden_size,
      "llama.cpp's architecture {} needs heads that add up to hidden_size {}, here {} of {}", architecture->name,
      config.hidden_size, attention.heads, attention.key_dim);
  QUENCH_CHECK_AS(ErrorCode::unsupported, architecture->output_bias || !attention.output_bias,
                  "llama.cpp's architecture {} has no attention output bias (attention_bias)", architecture->name);
}

Json write_gguf(const ExportJob& job) {
  require_gguf_model(job.config);
  QUENCH_CHECK(gguf_query_factor(job.config) == 1.0f, "GGUF: the config has another score scale than the file");
  if (const std::string text = folded_scale_text(job.tensors, job.config); !text.empty()) QUENCH_LOG_INFO("{}", text);
  const GgufArchitecture* architecture = find_gguf_architecture(job.config.model_type);
  std::vector<Entry> entries = entries_of(job, *architecture);
  const bool quantized = std::ranges::any_of(job.tensors, [](const ModelTensor& t) { return t.quantized != nullptr; });
  Metadata metadata = describe_model(job, *architecture, main_file_type(job.tensors, job.scheme), quantized);
  add_rope(job.config, std::string(architecture->name) + ".", metadata, entries);
  std::ranges::move(gguf_tokenizer(job.folder, job.config), std::back_inserter(metadata));
  name_by_tokens(*architecture, metadata);
  std::vector<GgufTensor> heads;
  std::uint64_t bytes = 0;
  for (const Entry& entry : entries) {
    heads.push_back(entry.head);
    bytes += gguf_padded(entry.head.bytes);
  }
  const std::string head = gguf_head(metadata, heads);
  OutputFile file(job.folder / kGgufFileName, head.size() + bytes);
  file.write(head);
  for (const Entry& entry : entries) {
    const Tensor data = entry.bytes();
    QUENCH_CHECK(data.nbytes() == entry.head.bytes, "{}: {} bytes, expected {}", entry.head.name, data.nbytes(),
                 entry.head.bytes);
    file.write({static_cast<const std::byte*>(data.raw_data()), data.nbytes()});
    const std::array<std::byte, kGgufAlignment> zeros{};
    file.write(std::span(zeros).first(gguf_padded(data.nbytes()) - data.nbytes()));
  }
  file.close();
  return {};
}

}  // namespace quench
