#include "export/formats/gguf/parts.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "core/system/check.h"
#include "export/formats/gguf/metadata_fields.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOf = "-of-";
constexpr std::size_t kDigits = 5, kEnding = 1 + kDigits + kOf.size() + kDigits;

std::optional<std::int64_t> number_of(std::string_view digits) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 1) return std::nullopt;
  return number;
}

// split.count of a file, split.no + 1, and tensors of all parts.
struct Split {
  std::int64_t count, number;
  std::optional<std::int64_t> tensors;

  Split(const GgufHead& head, const fs::path& file) {
    const GgufFields fields(head, "split.", file.string());
    count = fields.find_integer("count").value_or(1);
    number = fields.find_integer("no").value_or(0) + 1;
    tensors = fields.find_integer("tensors.count");
  }
};

std::string name_of(const fs::path& file) {
  return file.filename().string();
}

void require_first(const fs::path& file, const Split& split, const std::optional<GgufPartName>& name) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, name && name->count == split.count && name->number == split.number,
                  "{}: it is part {} of {} of a model (split.no, split.count), whose files end in "
                  "-{:05}-of-{:05}.gguf: give it back its name",
                  file.string(), split.number, split.count, split.number, split.count);
  if (split.number == 1) return;
  const fs::path first = name->file(1);
  QUENCH_CHECK_AS(ErrorCode::not_found, fs::exists(first),
                  "{}: it is part {} of {} of a model; part 1, {}, is missing in its folder", file.string(),
                  split.number, split.count, name_of(first));
  QUENCH_FAIL(ErrorCode::bad_config, "{}: it is part {} of {} of a model; name part 1, {}", file.string(), split.number,
              split.count, first.string());
}

void require_all(const GgufPartName& name) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> missing;
  for (std::int64_t part = 2; part <= name.count; ++part)
    if (const fs::path file = name.file(part); !fs::exists(file)) missing.push_back(name_of(file));
  const std::size_t shown = std::min(missing.size(), kShown);
  QUENCH_CHECK_AS(ErrorCode::not_found, missing.empty(),
                  "{}: the model has {} parts (split.count), of which its folder lacks {}{}; download or copy them",
                  name.file(1).string(), name.count,
                  fmt::join(missing.begin(), missing.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                  missing.size() > shown ? fmt::format(" and {} more", missing.size() - shown) : "");
}

}  // namespace

fs::path GgufPartName::file(std::int64_t part) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", model, part, count);
}

std::optional<GgufPartName> gguf_part_name(const fs::path& file) {
  const std::string stem = fs::path(file).replace_extension().string();
  if (file.extension() != ".gguf" || stem.size() <= kEnding) return std::nullopt;
  const std::string_view ending = std::string_view(stem).substr(stem.size() - kEnding);
  const auto number = number_of(ending.substr(1, kDigits)), count = number_of(ending.substr(kEnding - kDigits));
  if (ending[0] != '-' || ending.substr(1 + kDigits, kOf.size()) != kOf || !number || !count || *number > *count)
    return std::nullopt;
  return GgufPartName{stem.substr(0, stem.size() - kEnding), *number, *count};
}

fs::path gguf_file_of(const fs::path& first, const GgufEntry& entry) {
  return entry.part == 1 ? first : gguf_part_name(first)->file(entry.part);
}

void add_gguf_parts(const fs::path& first, GgufHead& head, GgufHead (*read)(const fs::path& file)) {
  const Split split(head, first);
  if (split.count <= 1) return;
  const auto name = gguf_part_name(first);
  require_first(first, split, name);
  require_all(*name);
  std::map<std::string, std::int64_t> part_of;
  for (const GgufEntry& entry : head.tensors) part_of.emplace(entry.name, 1);
  for (std::int64_t part = 2; part <= split.count; ++part) {
    const fs::path file = name->file(part);
    GgufHead more = read(file);
    const Split other(more, file);
    QUENCH_CHECK_AS(ErrorCode::corrupt,
                    other.number == part && other.count == split.count && other.tensors == split.tensors,
                    "{} is part {} of {} of another model than {} (split.no, split.count, split.tensors.count)",
                    file.string(), other.number, other.count, name_of(first));
    for (GgufEntry& entry : more.tensors) {
      const auto [place, is_new] = part_of.emplace(entry.name, part);
      QUENCH_CHECK_AS(ErrorCode::corrupt, is_new, "tensor {} is both in {} and in {}", entry.name,
                      name->file(place->second).string(), file.string());
      entry.part = part;
      head.tensors.push_back(std::move(entry));
    }
  }
  QUENCH_CHECK_AS(ErrorCode::corrupt,
                  !split.tensors || *split.tensors == static_cast<std::int64_t>(head.tensors.size()),
                  "{}: its {} parts hold {} tensors, split.tensors.count is {}: parts of different models",
                  first.string(), split.count, head.tensors.size(), *split.tensors);
}

}  // namespace quench
