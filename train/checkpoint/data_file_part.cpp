#include "train/checkpoint/data_file_part.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "train/checkpoint/hash.h"

namespace quench {
namespace {

std::uint64_t part_hash(const Json& json, std::string_view key) {
  const auto hash = parse_hash(json.at(key).as_string());
  QUENCH_CHECK(hash.has_value(), "the description of a data file has no hash \"{}\"", key);
  return *hash;
}

}  // namespace

DataFilePart describe(const DataFilePlan& plan, std::span<const CheckpointTensor> tensors) {
  DataFilePart part{plan.record, {}};
  part.tensors.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    part.tensors.push_back({tensors[i].name, tensors[i].data.dtype(), tensors[i].global_shape, plan.shards[i]});
  return part;
}

std::string to_text(const DataFilePart& part) {
  Json tensors = Json::array();
  for (const DataFilePart::Tensor& tensor : part.tensors) {
    Json dims = Json::array();
    for (const std::int64_t dim : tensor.shape) dims.push_back(dim);
    const ShardRecord& shard = tensor.shard;
    tensors.push_back(Json::Object{{"name", tensor.name},
                                   {"dtype", std::string(to_string(tensor.dtype))},
                                   {"shape", std::move(dims)},
                                   {"start", shard.slice.start},
                                   {"length", shard.slice.length},
                                   {"offset", shard.offset},
                                   {"size", shard.size},
                                   {"xxh3", format_hash(shard.xxh3)},
                                   {"column_start", shard.columns.start},
                                   {"column_length", shard.columns.length}});
  }
  const DataFileRecord& record = part.record;
  return Json(Json::Object{{"name", record.name},
                           {"rank", record.rank},
                           {"size", record.size},
                           {"header_size", record.header_size},
                           {"header_xxh3", format_hash(record.header_xxh3)},
                           {"tensors", std::move(tensors)}})
      .dump();
}

DataFilePart data_file_part(std::string_view text) {
  Json::ParseOptions options;
  options.max_bytes = Manifest::kMaxBytes;
  options.max_values = 16 * Manifest::kMaxTensors;
  options.source = "the description of a data file";
  const Json json = Json::parse(text, options);
  DataFilePart part;
  part.record = {json.at("name").as_string(), static_cast<int>(json.at("rank").as_int()), json.at("size").as_uint(),
                 json.at("header_size").as_uint(), part_hash(json, "header_xxh3")};
  for (const Json& entry : json.at("tensors").as_array()) {
    DataFilePart::Tensor& tensor = part.tensors.emplace_back();
    tensor.name = entry.at("name").as_string();
    tensor.dtype = dtype_from_string(entry.at("dtype").as_string()).value();
    for (const Json& dim : entry.at("shape").as_array()) tensor.shape.push_back(dim.as_int());
    tensor.shard = {0,
                    {entry.at("start").as_int(), entry.at("length").as_int()},
                    entry.at("offset").as_uint(),
                    entry.at("size").as_uint(),
                    part_hash(entry, "xxh3"),
                    {entry.at("column_start").as_int(), entry.at("column_length").as_int()}};
  }
  return part;
}

void append_part(Manifest& manifest, const DataFilePart& part) {
  const int file = static_cast<int>(manifest.files.size());
  manifest.files.push_back(part.record);
  manifest.tensors.reserve(manifest.tensors.size() + part.tensors.size());  // addresses of names in `known` stay
  std::unordered_map<std::string_view, std::size_t> known;
  known.reserve(manifest.tensors.size());
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) known.emplace(manifest.tensors[i].name, i);
  for (const DataFilePart::Tensor& added_part : part.tensors) {
    const auto [found, added] = known.try_emplace(added_part.name, manifest.tensors.size());
    if (added) manifest.tensors.push_back({added_part.name, added_part.dtype, added_part.shape, {}});
    TensorRecord& tensor = manifest.tensors[found->second];
    QUENCH_CHECK(tensor.dtype == added_part.dtype && tensor.shape == added_part.shape,
                 "checkpoint tensor '{}' is {}{} on rank {} and {}{} on an earlier rank", added_part.name,
                 to_string(added_part.dtype), added_part.shape.to_string(), part.record.rank, to_string(tensor.dtype),
                 tensor.shape.to_string());
    ShardRecord shard = added_part.shard;
    shard.file = file;
    const auto after = std::upper_bound(tensor.shards.begin(), tensor.shards.end(), shard,
                                        [](const ShardRecord& a, const ShardRecord& b) {
                                          return std::tie(a.slice.start, a.slice.length, a.columns.start) <
                                                 std::tie(b.slice.start, b.slice.length, b.columns.start);
                                        });
    tensor.shards.insert(after, shard);
  }
}

}  // namespace quench
