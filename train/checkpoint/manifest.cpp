#include "train/checkpoint/manifest.h"

#include <algorithm>

#include "train/checkpoint/hash.h"
#include "train/checkpoint/manifest_rules.h"

namespace quench {
namespace {

constexpr std::string_view kFormat = "quench.checkpoint";
constexpr std::string_view kHashPrefix = "{\n  \"manifest_xxh3\": \"";
constexpr std::string_view kHashSuffix = "\",\n";
constexpr std::string_view kZeros = "0000000000000000";

bool has_hash_field(std::string_view text) {
  return text.starts_with(kHashPrefix) && text.size() > kHashPrefix.size() + kHashDigits + kHashSuffix.size() &&
         text.substr(kHashPrefix.size() + kHashDigits).starts_with(kHashSuffix);
}

std::int64_t at_least(const Json& object, std::string_view key, std::int64_t minimum) {
  const std::int64_t value = object.at(key).as_int();
  QUENCH_CHECK_AS(ErrorCode::corrupt, value >= minimum, "\"{}\" is {}; at least {} was expected", key, value, minimum);
  return value;
}

std::uint64_t hash_at(const Json& object, std::string_view key) {
  const std::string& text = object.at(key).as_string();
  const auto hash = parse_hash(text);
  QUENCH_CHECK_AS(ErrorCode::corrupt, hash.has_value(), "\"{}\" is \"{}\"; {} lower-case hex digits were expected", key,
                  text, kHashDigits);
  return *hash;
}

Json object_at(const Json& object, std::string_view key) {
  const Json& value = object.at(key);
  static_cast<void>(value.as_object());
  return value;
}

DataFileRecord parse_data_file(const Json& json) {
  DataFileRecord record;
  record.name = json.at("name").as_string();
  record.rank = static_cast<int>(std::min<std::int64_t>(at_least(json, "rank", 0), INT32_MAX));
  record.size = json.at("size").as_uint();
  record.header_size = json.at("header_size").as_uint();
  record.header_xxh3 = hash_at(json, "header_xxh3");
  return record;
}

TensorRecord parse_tensor(const Json& json) {
  TensorRecord record;
  record.name = json.at("name").as_string();
  const std::string& dtype = json.at("dtype").as_string();
  const auto known = dtype_from_string(dtype);
  QUENCH_CHECK_AS(ErrorCode::corrupt, known && to_string(*known) == dtype, "dtype \"{}\" of tensor '{}' is unknown",
                  dtype, record.name);
  record.dtype = *known;
  const auto& dims = json.at("shape").as_array();
  QUENCH_CHECK_AS(ErrorCode::corrupt, dims.size() <= Shape::kMaxRank,
                  "tensor '{}' has {} dimensions; at most {} are possible", record.name, dims.size(), Shape::kMaxRank);
  for (const Json& dim : dims) record.shape.push_back(dim.as_int());
  for (const Json& shard : json.at("shards").as_array()) {
    ShardRecord part;
    part.file = static_cast<int>(std::min<std::int64_t>(at_least(shard, "file", 0), INT32_MAX));
    part.slice = {at_least(shard, "start", 0), at_least(shard, "length", 0)};
    part.offset = shard.at("offset").as_uint();
    part.size = shard.at("size").as_uint();
    part.xxh3 = hash_at(shard, "xxh3");
    if (shard.find("column_start") != nullptr)
      part.columns = {at_least(shard, "column_start", 0), at_least(shard, "column_length", 1)};
    record.shards.push_back(part);
  }
  return record;
}

Manifest parse_members(const Json& root) {
  const std::string& format = root.at("format").as_string();
  QUENCH_CHECK_AS(ErrorCode::corrupt, format == kFormat, "format is \"{}\", expected \"{}\"", format, kFormat);
  const std::int64_t version = at_least(root, "format_version", 1);
  QUENCH_CHECK_AS(
      ErrorCode::unsupported, version <= Manifest::kFormatVersion,
      "was written in checkpoint format {} by Quench {}; this program reads formats up to {}; use the newer "
      "program",
      version, root.find("tool_version") ? root.at("tool_version").as_string() : "of a later version",
      Manifest::kFormatVersion);
  Manifest manifest;
  manifest.save_uuid = root.at("save_uuid").as_string();
  manifest.world_size = static_cast<int>(std::min<std::int64_t>(at_least(root, "world_size", 1), INT32_MAX));
  manifest.state.step = at_least(root, "step", 0);
  manifest.state.tokens_seen = at_least(root, "tokens_seen", 0);
  manifest.state.samples = at_least(root, "samples", 0);
  manifest.state.tool_version = root.at("tool_version").as_string();
  manifest.state.config = object_at(root, "config");
  manifest.state.rng = object_at(root, "rng");
  manifest.state.data = object_at(root, "data");
  manifest.state.schedule = object_at(root, "schedule");
  manifest.state.extra = object_at(root, "extra");
  for (const Json& file : root.at("files").as_array()) manifest.files.push_back(parse_data_file(file));
  const auto& tensors = root.at("tensors").as_array();
  manifest.tensors.reserve(tensors.size());
  for (const Json& tensor : tensors) manifest.tensors.push_back(parse_tensor(tensor));
  return manifest;
}

Json to_json(const DataFileRecord& file) {
  return Json::Object{{"name", file.name},
                      {"rank", file.rank},
                      {"size", file.size},
                      {"header_size", file.header_size},
                      {"header_xxh3", format_hash(file.header_xxh3)}};
}

Json to_json(const TensorRecord& tensor) {
  Json dims = Json::array();
  for (const std::int64_t dim : tensor.shape) dims.push_back(dim);
  Json shards = Json::array();
  for (const ShardRecord& shard : tensor.shards) {
    Json record =
        Json::Object{{"file", shard.file},     {"start", shard.slice.start}, {"length", shard.slice.length},
                     {"offset", shard.offset}, {"size", shard.size},         {"xxh3", format_hash(shard.xxh3)}};
    if (shard.columns.length > 0) {
      record.set("column_start", shard.columns.start);
      record.set("column_length", shard.columns.length);
    }
    shards.push_back(std::move(record));
  }
  return Json::Object{{"name", tensor.name},
                      {"dtype", std::string(to_string(tensor.dtype))},
                      {"shape", std::move(dims)},
                      {"shards", std::move(shards)}};
}

// One record per line.
template <class Record>
void append_records(std::string& text, std::string_view key, const std::vector<Record>& records) {
  text += fmt::format(",\n  \"{}\": [", key);
  for (std::size_t i = 0; i < records.size(); ++i) {
    text += i == 0 ? "\n    " : ",\n    ";
    text += to_json(records[i]).dump();
  }
  text += "]";
}

void append_member(std::string& text, std::string_view key, const Json& value) {
  text += fmt::format(",\n  \"{}\": {}", key, value.dump());
}

}  // namespace

std::uint64_t manifest_hash(std::string_view text) {
  QUENCH_CHECK(has_hash_field(text), "a manifest must begin with its hash");
  StreamHash hash;
  hash.update(kHashPrefix);
  hash.update(kZeros);
  hash.update(text.substr(kHashPrefix.size() + kHashDigits));
  return hash.digest();
}

void stamp_manifest_hash(std::string& text) {
  text.replace(kHashPrefix.size(), kHashDigits, format_hash(manifest_hash(text)));
}

Manifest Manifest::parse(std::string_view text, std::string_view source) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, text.size() <= kMaxBytes, "{}: {} bytes; a manifest has at most {}", source,
                  text.size(), kMaxBytes);
  QUENCH_CHECK_AS(ErrorCode::corrupt, has_hash_field(text),
                  "{}: does not begin with \"manifest_xxh3\"; the file is damaged or no checkpoint manifest", source);
  const std::string_view stored = text.substr(kHashPrefix.size(), kHashDigits);
  const std::string actual = format_hash(manifest_hash(text));
  QUENCH_CHECK_AS(ErrorCode::corrupt, stored == actual, "{}: the manifest is damaged: its hash is {}, it states {}",
                  source, actual, stored);
  Json::ParseOptions options;
  options.max_bytes = kMaxBytes;
  options.max_depth = Json::kMaxDepth;
  options.max_values = 16 * kMaxTensors;  // a record with one shard has 14
  options.source = source;
  const Json root = Json::parse(text, options);
  try {
    Manifest manifest = parse_members(root);
    const std::string fault = find_manifest_fault(manifest);
    QUENCH_CHECK_AS(ErrorCode::corrupt, fault.empty(), "{}", fault);
    return manifest;
  } catch (const Error& error) {
    QUENCH_FAIL(error.code(), "{}: {}", source, error.what());
  }
}

std::string Manifest::dump() const {
  const std::string fault = find_manifest_fault(*this);
  QUENCH_CHECK(fault.empty(), "checkpoint of step {}: {}", state.step, fault);
  std::string text(kHashPrefix);
  text += kZeros;
  text += fmt::format("\",\n  \"format\": \"{}\"", kFormat);
  const bool has_columns = std::ranges::any_of(tensors, [](const TensorRecord& tensor) {
    return std::ranges::any_of(tensor.shards, [](const ShardRecord& shard) { return shard.columns.length > 0; });
  });
  append_member(text, "format_version", has_columns ? kFormatVersion : 1);  // earlier programs read what they can
  append_member(text, "tool_version", state.tool_version);
  append_member(text, "save_uuid", save_uuid);
  append_member(text, "world_size", world_size);
  append_member(text, "step", state.step);
  append_member(text, "tokens_seen", state.tokens_seen);
  append_member(text, "samples", state.samples);
  append_member(text, "config_xxh3", format_hash(config_hash(state.config)));
  append_member(text, "config", state.config);
  append_member(text, "rng", state.rng);
  append_member(text, "data", state.data);
  append_member(text, "schedule", state.schedule);
  append_member(text, "extra", state.extra);
  append_records(text, "files", files);
  append_records(text, "tensors", tensors);
  text += "\n}\n";
  stamp_manifest_hash(text);
  return text;
}

std::uint64_t config_hash(const Json& config) {
  StreamHash hash;
  hash.update(config.dump());
  return hash.digest();
}

}  // namespace quench
