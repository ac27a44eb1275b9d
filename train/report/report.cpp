#include "train/report/report.h"

#include <array>
#include <map>
#include <set>

#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/output_file.h"
#include "core/system/utf8.h"
#include "train/report/run_json.h"

namespace quench {
namespace {

constexpr std::string_view kGenerator = "<meta name=\"generator\" content=\"Quench\">";
constexpr std::string_view kDataMark = "@DATA@";
constexpr std::size_t kHeadBytes = 4096;
constexpr std::size_t kMaxTitleBytes = 200;
constexpr std::uint64_t kMaxAttachedBytes = std::uint64_t{1} << 20;

// Keys of run_json() that a comparison does not show.
constexpr std::array<std::string_view, 7> kOfOneRun{"ranks",   "events",      "checkpoints", "health",
                                                    "experts", "evaluations", "samples"};

// For the content of a script element: no text of the data ends it or opens a comment.
std::string script_json(const Json& json) {
  std::string text;
  for (const char c : json.dump())
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  return text;
}

}  // namespace

std::string render_report(std::span<const RunData> runs, std::span<const std::filesystem::path> attached) {
  Json::Array run_list, texts;
  for (const RunData& run : runs) {
    run_list.push_back(run_json(run));
    if (runs.size() > 1)
      for (const std::string_view key : kOfOneRun) run_list.back().erase(key);
  }
  for (const std::filesystem::path& file : attached)
    texts.push_back(
        Json::Array{shorten_utf8(file.stem().string(), kMaxTitleBytes), read_file(file, kMaxAttachedBytes)});
  std::string page(page_template());
  return page.replace(page.find(kDataMark), kDataMark.size(),
                      script_json(Json::Object{{"runs", std::move(run_list)}, {"attached", std::move(texts)}}));
}

RunData write_report(const std::filesystem::path& run_folder, const std::filesystem::path& output,
                     std::span<const std::filesystem::path> attached) {
  RunData run = load_run(run_folder);
  write_file_atomically(output, render_report({&run, 1}, attached));
  return run;
}

std::vector<RunData> write_comparison(std::span<const std::filesystem::path> folders,
                                      const std::filesystem::path& output) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, folders.size() >= 2 && folders.size() <= kMaxComparedRuns,
                  "{} run folders: between 2 and {} can be compared", folders.size(), kMaxComparedRuns);
  std::set<std::filesystem::path> seen;
  std::map<std::string, int> names;
  std::vector<RunData> runs;
  for (const std::filesystem::path& folder : folders) {
    runs.push_back(load_run(folder));
    std::error_code ignored;
    QUENCH_CHECK_AS(ErrorCode::bad_config, seen.insert(std::filesystem::weakly_canonical(folder, ignored)).second,
                    "run folder {} is named twice", folder.string());
    ++names[runs.back().name];
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (names[runs[i].name] > 1) runs[i].name = folders[i].string();
  write_file_atomically(output, render_report(runs));
  return runs;
}

bool is_report(const std::filesystem::path& file) {
  return read_beginning(file, kHeadBytes).find(kGenerator) != std::string::npos;
}

}  // namespace quench
