#include "export/imatrix/imatrix.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include "core/system/check.h"
#include "core/system/file.h"
#include "export/formats/gguf/metadata.h"
#include "export/formats/gguf/reader.h"
#include "export/formats/gguf/types.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr const char *kDatasets = "imatrix.datasets", *kChunks = "imatrix.chunk_count",
                     *kChunkSize = "imatrix.chunk_size";

void check_values(const std::vector<float>& values, std::string_view what, const std::string& name,
                  const fs::path& file) {
  for (std::size_t i = 0; i < values.size(); ++i)
    QUENCH_CHECK_AS(ErrorCode::corrupt, std::isfinite(values[i]) && values[i] >= 0,
                    "{}: {} of {} at {} is {}, expected finite numbers of at least 0; compute the importance matrix "
                    "again",
                    file.string(), what, name, i, values[i]);
}

void check_entry(const std::string& name, const ImatrixEntry& entry, const fs::path& file) {
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  !entry.counts.empty() && !entry.sums.empty() && entry.sums.size() % entry.counts.size() == 0,
                  "{}: {} has {} sums and {} counts", file.string(), name, entry.sums.size(), entry.counts.size());
  check_values(entry.sums, "the sum", name, file);
  check_values(entry.counts, "the count", name, file);
  bool any = false;
  for (const float count : entry.counts) any = any || count > 0;
  QUENCH_CHECK_AS(ErrorCode::corrupt, any, "{}: {} was computed on no data (count 0)", file.string(), name);
}

// Reads the legacy form.
class LegacyFile {
 public:
  explicit LegacyFile(const fs::path& path) : path_(path), file_(path, std::ios::binary), size_(fs::file_size(path)) {}

  Imatrix read() {
    Imatrix matrix;
    const std::int32_t count = number("the number of entries");
    check(count > 0, "it begins with {} entries; imatrix files of llama.cpp are GGUF or legacy .dat", count);
    for (std::int32_t i = 0; i < count; ++i) {
      const std::string name = text("a name");
      const std::int32_t calls = number("a chunk count"), values = number("a number of values");
      check(values > 0, "{} has {} values", name, values);
      check(calls > 0, "{} was computed on {} chunks", name, calls);
      ImatrixEntry entry{.sums = std::vector<float>(fitting(values, sizeof(float), name)),
                         .counts = {static_cast<float>(calls)}};
      take(entry.sums.data(), entry.sums.size() * sizeof(float), name);
      check_entry(name, entry, path_);
      check(matrix.entries.emplace(name, std::move(entry)).second, "{} twice", name);
    }
    if (left() == 0) return matrix;  // older files end here
    matrix.chunks = number("the chunk count");
    if (left() > 0) matrix.datasets.push_back(text("the data's name"));
    return matrix;
  }

 private:
  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> form, Args&&... args) const {
    if (!condition)
      QUENCH_FAIL(ErrorCode::corrupt, "{}: not a valid imatrix file: {}", path_.string(),
                  fmt::format(form, std::forward<Args>(args)...));
  }
  [[nodiscard]] std::uint64_t left() { return size_ - static_cast<std::uint64_t>(file_.tellg()); }
  std::size_t fitting(std::int64_t count, std::size_t width, std::string_view what) {
    check(count >= 0 && static_cast<std::uint64_t>(count) <= left() / width, "{}: {} items, more than the file holds",
          what, count);
    return static_cast<std::size_t>(count);
  }
  void take(void* to, std::size_t bytes, std::string_view what) {
    check(bytes <= left(), "it ends within {}", what);
    file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    QUENCH_CHECK_AS(ErrorCode::io, file_.good(), "cannot read {}", path_.string());
  }
  std::int32_t number(std::string_view what) {
    std::int32_t value = 0;
    take(&value, sizeof value, what);
    return value;
  }
  std::string text(std::string_view what) {
    std::string value(fitting(number(what), 1, what), '\0');
    take(value.data(), value.size(), what);
    return value;
  }

  fs::path path_;
  std::ifstream file_;
  std::uint64_t size_;
};

std::vector<float> values_of(const fs::path& file, const GgufEntry& entry) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, entry.type == gguf_type_of(DType::f32), "{}: {} has type {}, expected F32",
                  file.string(), entry.name, gguf_type_name(entry.type));
  const Tensor values = Tensor::empty(entry.shape, DType::f32);
  read_gguf_tensor(file, entry, values);
  return {values.data<float>(), values.data<float>() + values.numel()};
}

Imatrix read_gguf_form(const fs::path& file) {
  const GgufHead head = read_gguf_head(file);
  const auto type = head.metadata.find("general.type");
  const bool is_matrix = type != head.metadata.end() && type->second == Json("imatrix");
  QUENCH_CHECK_AS(ErrorCode::bad_config, is_matrix, "{} is a GGUF file, but no importance matrix (general.type {})",
                  file.string(), type == head.metadata.end() ? "absent" : type->second.dump());
  Imatrix matrix;
  const auto integer = [&](const char* key) {
    const auto found = head.metadata.find(key);
    const bool valid = found != head.metadata.end() && found->second.is_integer() && found->second.as_double() >= 0 &&
                       found->second.as_double() < 0x1p63;
    QUENCH_CHECK_AS(ErrorCode::corrupt, valid, "{}: {} is {}", file.string(), key,
                    found == head.metadata.end() ? "missing" : found->second.dump());
    return found->second.as_int();
  };
  matrix.chunks = integer(kChunks);
  matrix.chunk_size = integer(kChunkSize);
  QUENCH_CHECK_AS(ErrorCode::corrupt, matrix.chunks > 0, "{}: {} is 0: the matrix was computed on no data",
                  file.string(), kChunks);
  if (const auto found = head.metadata.find(kDatasets); found != head.metadata.end() && found->second.is_array())
    for (const Json& name : found->second.as_array())
      if (name.is_string()) matrix.datasets.push_back(name.as_string());
  for (const GgufEntry& entry : head.tensors) {
    const std::string_view name = entry.name;
    if (name.ends_with(kSums))
      matrix.entries[std::string(name.substr(0, name.size() - kSums.size()))].sums = values_of(file, entry);
    else if (name.ends_with(kCounts))
      matrix.entries[std::string(name.substr(0, name.size() - kCounts.size()))].counts = values_of(file, entry);
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt, !matrix.entries.empty(), "{}: the importance matrix has no entries",
                  file.string());
  for (const auto& [name, entry] : matrix.entries) check_entry(name, entry, file);
  return matrix;
}

}  // namespace

Imatrix read_imatrix(const fs::path& file) {
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::exists(file, ignored), "{} does not exist", file.string());
  QUENCH_CHECK_AS(ErrorCode::io, fs::is_regular_file(file, ignored), "{} is not a regular file", file.string());
  std::ifstream stream(file, std::ios::binary);
  QUENCH_CHECK_AS(ErrorCode::io, stream.is_open(), "cannot open {}", file.string());
  char magic[4] = {};
  stream.read(magic, sizeof magic);
  stream.close();
  return std::memcmp(magic, "GGUF", sizeof magic) == 0 ? read_gguf_form(file) : LegacyFile(file).read();
}

void write_imatrix(const Imatrix& matrix, const fs::path& file) {
  const std::vector<std::pair<std::string, GgufValue>> metadata = {
      {"general.type", std::string("imatrix")},
      {kDatasets, matrix.datasets},
      {kChunks, static_cast<std::uint32_t>(matrix.chunks)},
      {kChunkSize, static_cast<std::uint32_t>(matrix.chunk_size)}};
  std::vector<GgufTensor> heads;
  std::vector<const std::vector<float>*> values;
  const auto add = [&](const std::string& name, std::int64_t width, const std::vector<float>& items) {
    const auto rows = items.size() / static_cast<std::size_t>(width);
    heads.push_back({.name = name,
                     .dimensions = {static_cast<std::uint64_t>(width), static_cast<std::uint64_t>(rows)},
                     .type = gguf_type_of(DType::f32),
                     .bytes = items.size() * sizeof(float)});
    values.push_back(&items);
  };
  for (const auto& [name, entry] : matrix.entries) {
    add(name + std::string(kSums), entry.columns(), entry.sums);
    add(name + std::string(kCounts), 1, entry.counts);
  }
  std::string bytes = gguf_head(metadata, heads);
  for (const std::vector<float>* items : values) {
    bytes.append(reinterpret_cast<const char*>(items->data()), items->size() * sizeof(float));
    bytes.resize(gguf_padded(bytes.size()));
  }
  write_file_atomically(file, bytes);
}

}  // namespace quench
