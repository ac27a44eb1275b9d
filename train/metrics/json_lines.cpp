#include "train/metrics/json_lines.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/replacement.h"

namespace quench {
namespace {

// Against corrupt files.
constexpr std::size_t kMaxLineBytes = std::size_t{16} << 20;
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;

std::ifstream open_log(const std::filesystem::path& path) {
  std::error_code ignored;
  QUENCH_CHECK_AS(ErrorCode::not_found, std::filesystem::exists(path, ignored), "there is no file {}", path.string());
  QUENCH_CHECK_AS(ErrorCode::io, std::filesystem::is_regular_file(path, ignored), "{} is not a regular file",
                  path.string());
  std::ifstream file(path, std::ios::binary);
  QUENCH_CHECK_AS(ErrorCode::io, file.is_open(), "cannot open {}: {}", path.string(), errno_text(errno));
  return file;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// nullopt if invalid.
std::optional<Json> parse_record(std::string_view line) {
  if (line.size() > kMaxLineBytes) return std::nullopt;
  try {
    Json record = Json::parse(line);
    if (!record.is_object()) return std::nullopt;
    const Json* step = record.find("step");
    if (step == nullptr || !step->is_integer()) return std::nullopt;
    (void)step->as_int();
    return record;
  } catch (const Error&) {
    return std::nullopt;
  }
}

struct Survey {
  std::size_t later = 0;
  std::size_t invalid = 0;
  bool torn = false;  // no line break at the end: an append would join it

  [[nodiscard]] bool clean() const { return later == 0 && invalid == 0 && !torn; }
};

// `keep`: lines with their line breaks.
Survey survey(const std::filesystem::path& path, std::int64_t resume_step,
              const std::function<void(std::string_view line)>& keep) {
  Survey result;
  auto file = open_log(path);
  std::string line;
  while (std::getline(file, line)) {
    result.torn = file.eof();
    if (is_blank(line)) continue;
    const auto record = parse_record(line);
    if (!record) {
      ++result.invalid;
    } else if (record->at("step").as_int() > resume_step) {
      ++result.later;
    } else {
      line += '\n';
      keep(line);
    }
  }
  QUENCH_CHECK_AS(ErrorCode::io, !file.bad(), "cannot read {}", path.string());
  return result;
}

void drop_later_records(const std::filesystem::path& path, std::int64_t resume_step) {
  if (survey(path, resume_step, [](std::string_view) {}).clean()) return;
  FileReplacement kept(path);
  std::string pending;
  const Survey dropped = survey(path, resume_step, [&](std::string_view line) {
    pending += line;
    if (pending.size() < kWriteBytes) return;
    kept.write(pending);
    pending.clear();
  });
  kept.write(pending);
  kept.commit();
  if (dropped.later > 0)
    QUENCH_LOG_INFO("{}: dropped {} records beyond step {}, where the run resumes", path.string(), dropped.later,
                    resume_step);
  if (dropped.invalid > 0) QUENCH_LOG_WARN("{}: dropped {} lines that are not records", path.string(), dropped.invalid);
}

void set_aside(const std::filesystem::path& path) {
  for (int number = 1;; ++number) {
    auto target = path;
    target += fmt::format(".{}", number);
    if (std::filesystem::exists(std::filesystem::symlink_status(target))) continue;
    rename_durably(path, target);
    QUENCH_LOG_INFO("{} holds an earlier run; kept as {}", path.string(), target.filename().string());
    return;
  }
}

// Makes the file appendable.
const std::filesystem::path& prepare(const std::filesystem::path& path, std::optional<std::int64_t> resume_step) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return path;
  if (resume_step) {
    drop_later_records(path, *resume_step);
  } else if (std::filesystem::is_regular_file(path, error) && std::filesystem::file_size(path, error) > 0) {
    set_aside(path);
  }
  return path;
}

}  // namespace

JsonLines::JsonLines(const std::filesystem::path& path, std::optional<std::int64_t> resume_step)
    : file_(std::make_unique<AppendFile>(prepare(path, resume_step))) {}

void JsonLines::append(const Json& record) {
  file_->append(record.dump() + "\n");
}

void JsonLines::rewind(std::int64_t step) {
  file_->close();
  // The file was replaced.
  file_ = std::make_unique<AppendFile>(prepare(path(), step));
}

std::size_t read_json_lines(const std::filesystem::path& path,
                            const std::function<void(const Json& record, std::int64_t step)>& each) {
  std::size_t skipped = 0;
  auto file = open_log(path);
  std::string line;
  while (std::getline(file, line)) {
    if (is_blank(line)) continue;
    if (const auto record = parse_record(line))
      each(*record, record->at("step").as_int());
    else
      ++skipped;
  }
  QUENCH_CHECK_AS(ErrorCode::io, !file.bad(), "cannot read {}", path.string());
  return skipped;
}

}  // namespace quench
