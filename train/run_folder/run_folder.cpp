#include "train/run_folder/run_folder.h"

#include "data/tokenizer/tokenizer_kind.h"
#include "train/config/data_files.h"
#include "train/metrics/run_files.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

Json files_of(const std::vector<DataSource>& sources) {
  Json list = Json::array();
  for (const DataSource& source : sources) {
    Json files = Json::array();
    for (const std::string& file : expand_pattern(source.path)) files.push_back(absolute(file));
    list.push_back(Json::Object{{"path", source.path}, {"files", std::move(files)}});
  }
  return list;
}

}  // namespace

Json run_sources(const RunConfig& config) {
  Json json = Json::object();
  json.set("working_directory", fs::current_path().string());
  if (!config.model.path.empty()) json.set("model", absolute(config.model.path));
  if (!config.data.tokenizer.empty())
    json.set("tokenizer",
             is_tokenizer_word(config.data.tokenizer) ? config.data.tokenizer : absolute(config.data.tokenizer));
  json.set("train", files_of(config.data.train));
  json.set("validation", files_of(config.data.validation));
  return json;
}

bool has_foreign_model_part(const fs::path& run) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(run / run_files::kModelFolder, ignored)) &&
         !fs::exists(run / run_files::kSources, ignored);
}

}  // namespace quench
