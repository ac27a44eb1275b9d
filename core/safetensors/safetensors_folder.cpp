#include "core/safetensors/safetensors_folder.h"

#include <algorithm>
#include <set>

#include "core/json/json.h"
#include "core/safetensors/safetensors_limits.h"
#include "core/system/file.h"
#include "core/system/log_once.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{256} << 20;

bool is_plain_file_name(std::string_view name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 255 && name != "." && name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), is_allowed);
}

bool is_present(const std::filesystem::path& path) {
  std::error_code error;
  // True for broken links: opening reports the reason.
  return std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
}

[[noreturn]] void fail_no_model(const std::filesystem::path& folder) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(folder, error);
  std::string_view hint;
  if (!is_folder) {
    hint = "; it is not a folder";
  } else if (is_present(folder / "adapter_model.safetensors")) {
    hint = "; it holds an adapter, which needs its base model";
  } else if (is_present(folder / "pytorch_model.bin") || is_present(folder / "pytorch_model.bin.index.json")) {
    hint = "; it holds a pickled PyTorch model, which must be converted to safetensors first";
  }
  QUENCH_FAIL(ErrorCode::not_found, "{} has neither {} nor {}{}", folder.string(), kModelFileName, kModelIndexName,
              hint);
}

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(std::string_view text, std::string_view source) {
  Json::ParseOptions options;
  options.source = source;
  options.max_bytes = kMaxIndexBytes;
  options.max_values = kSafetensorsMaxTensors + 1000;  // and some metadata
  Json index = Json::parse(text, options);
  const auto fail = [&](const Json& at, const std::string& what) {
    QUENCH_FAIL(ErrorCode::corrupt, "{}:{}:{}: {}", source, at.line(), at.column(), what);
  };
  if (!index.is_object()) fail(index, fmt::format("expected an object, got {}", index.type_name()));
  const Json* files = index.find("weight_map");
  if (files == nullptr) fail(index, "an index needs the key \"weight_map\"");
  if (!files->is_object()) fail(*files, fmt::format("weight_map: expected an object, got {}", files->type_name()));
  std::map<std::string, std::string> result;
  for (const auto& [tensor, file] : files->as_object()) {
    if (const std::string_view problem = safetensors_name_problem(tensor); !problem.empty())
      fail(file, fmt::format("tensor name {} {}", in_quotes(tensor), problem));
    if (!file.is_string())
      fail(file, fmt::format("file of tensor {}: expected a string, got {}", in_quotes(tensor), file.type_name()));
    if (!is_plain_file_name(file.as_string()))
      fail(file, fmt::format("file of tensor {}: {} is not the plain name of a file in this folder", in_quotes(tensor),
                             in_quotes(file.as_string())));
    result.emplace(tensor, file.as_string());
  }
  return result;
}

SafetensorsFolder::SafetensorsFolder(const std::filesystem::path& folder) : path_(folder) {
  if (is_present(folder / kModelFileName)) {
    add_file(folder / kModelFileName);
    if (is_present(folder / kModelIndexName))
      QUENCH_LOG_WARN_ONCE(
          "{} holds {} and {}: the weights of {} are used, as in Transformers (vLLM takes the shards of "
          "the index); remove the one that is out of date",
          folder.string(), kModelFileName, kModelIndexName, kModelFileName);
  } else if (is_present(folder / kModelIndexName)) {
    open_shards(folder / kModelIndexName);
  } else {
    fail_no_model(folder);
  }
}

void SafetensorsFolder::add_file(const std::filesystem::path& path, const std::map<std::string, std::string>* index) {
  const SafetensorsReader& reader = files_.emplace_back(path);
  for (const SafetensorsEntry& entry : reader.header().entries) {
    if (index != nullptr) {
      const auto listed = index->find(entry.name);
      if (listed == index->end() || listed->second != path.filename()) continue;
    }
    tensors_.emplace(entry.name, Location{&reader, &entry});
  }
}

void SafetensorsFolder::open_shards(const std::filesystem::path& index) {
  const auto listed = parse_safetensors_index(read_file(index, kMaxIndexBytes), index.string());
  std::set<std::string_view> names;
  for (const auto& [tensor, file] : listed) names.insert(file);
  for (const std::string_view name : names) {
    try {
      add_file(path_ / name, &listed);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
      QUENCH_FAIL(ErrorCode::not_found, "{} (listed in {}); copy or download the missing shard", error.what(),
                  index.string());
    }
  }
  // Not where the index has them, as after a new split of the weights, or not in the index.
  std::map<std::string_view, const SafetensorsReader*> elsewhere;
  for (const SafetensorsReader& reader : files_)
    for (const SafetensorsEntry& entry : reader.header().entries) {
      if (tensors_.contains(entry.name) && !elsewhere.contains(entry.name)) continue;
      const auto [place, is_new] = elsewhere.emplace(entry.name, &reader);
      QUENCH_CHECK_AS(ErrorCode::corrupt, is_new, "tensor {} is both in {} and in {}, and {} does not choose one",
                      in_quotes(entry.name), place->second->path().string(), reader.path().string(), index.string());
      tensors_.emplace(entry.name, Location{&reader, &entry});
    }
  std::string absent;
  std::size_t count = 0;
  for (const auto& [tensor, file] : listed)
    if (!tensors_.contains(tensor) && ++count == 1) absent = fmt::format("{} in {}", in_quotes(tensor), file);
  if (count > 0)
    QUENCH_LOG_WARN_ONCE("{} lists tensors that no shard holds, {} of them, which are passed over: {}{}",
                         index.string(), count, absent, count > 1 ? " first" : "");
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) names.push_back(name);
  return names;
}

std::optional<SafetensorsFolder::Location> SafetensorsFolder::find(std::string_view name) const {
  const auto place = tensors_.find(name);
  if (place == tensors_.end()) return std::nullopt;
  return place->second;
}

SafetensorsFolder::Location SafetensorsFolder::at(std::string_view name) const {
  if (const auto location = find(name)) return *location;
  QUENCH_FAIL(ErrorCode::not_found, "{} has no tensor \"{}\"", path_.string(), name);
}

std::uint64_t SafetensorsFolder::total_bytes() const noexcept {
  std::uint64_t total = 0;
  for (const auto& [name, location] : tensors_) total += location.entry->nbytes();
  return total;
}

}  // namespace quench
