#include "data/text/data_files.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <set>
#include <string_view>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "data/files/dataset_card.h"
#include "data/files/text_input.h"
#include "data/formats/token_stream.h"
#include "data/text/text_format.h"

namespace quench {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFolderDepth = 8;
constexpr std::string_view kCard = "README.md";
constexpr std::uint64_t kMaxCardBytes = std::uint64_t{4} << 20;  // and of a list of files

struct SplitWord {
  std::string_view word, split;
};
constexpr std::array<SplitWord, 10> kSplitWords = {{{"train", "train"},
                                                    {"training", "train"},
                                                    {"validation", "validation"},
                                                    {"valid", "validation"},
                                                    {"val", "validation"},
                                                    {"dev", "validation"},
                                                    {"test", "test"},
                                                    {"testing", "test"},
                                                    {"eval", "test"},
                                                    {"evaluation", "test"}}};

// Lower case.
constexpr std::array<std::string_view, 9> kDescriptions = {
    "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json",           "dataset.json",
    "config.json",       "tokenizer.json",     "requirements.txt",  "tokenizer_config.json"};

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view split_of_word(std::string_view word) {
  const auto known = std::ranges::find(kSplitWords, word, &SplitWord::word);
  return known != kSplitWords.end() ? known->split : std::string_view();
}

// "train" of "my-train_02"; or empty.
std::string_view split_of_name(const std::string& name) {
  const std::string text = lower(name);
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && is_letter(text[end])) ++end;
    const std::string_view split = split_of_word(std::string_view(text).substr(begin, end - begin));
    if (!split.empty()) return split;
    begin = std::max(end, begin + 1);
    while (begin < text.size() && !is_letter(text[begin])) ++begin;
  }
  return {};
}

// "train_sft" of "train_sft-00000-of-00003-0123abcd" (the Hub's shards); or empty.
std::string sharded_split(const std::string& stem) {
  const std::size_t of = stem.find("-of-");
  if (of == std::string::npos) return {};
  const std::size_t dash = stem.rfind('-', of - 1);
  if (dash == std::string::npos || dash == 0) return {};
  const std::string number = stem.substr(dash + 1, of - dash - 1);
  return number.size() >= 5 && number.find_first_not_of("0123456789") == std::string::npos ? stem.substr(0, dash)
                                                                                           : std::string();
}

struct FolderFile {
  fs::path path;
  const TextFormat* format = nullptr;
  std::string_view split{};  // train, validation, test or empty
  std::string name{};        // as spelled: "train_sft"
  std::string_view word{};
  std::string set{};  // parent folders without a split
};

bool is_left_out(const fs::path& path) {
  const std::string name = lower(path.filename().string());
  return name.starts_with('.') || name.starts_with('_') || name.starts_with("readme") || name.starts_with("license") ||
         name.starts_with("cache-") || std::ranges::find(kDescriptions, name) != kDescriptions.end();
}

// By the whole file name, else the nearest split folder.
FolderFile folder_file(const fs::path& root, const fs::path& path, const TextFormat* format) {
  FolderFile file{.path = path, .format = format};
  std::string stem = path.stem().string();
  if (text_extension(path) != path.extension()) stem = fs::path(stem).stem().string();
  file.word = split_of_name(stem);
  const std::string sharded = sharded_split(stem);
  const auto use = [&](const std::string& name, std::string_view split) {
    if (!file.split.empty() || split.empty()) return;
    file.split = split;
    file.name = name;
  };
  use(sharded, split_of_name(sharded));
  use(stem, split_of_word(lower(stem)));
  for (fs::path folder = path.parent_path(); folder != root; folder = folder.parent_path()) {
    const std::string name = folder.filename().string();
    const std::string_view split = split_of_name(name);
    use(name, split);
    if (split.empty() && name != "data") file.set = file.set.empty() ? name : name + "/" + file.set;
  }
  return file;
}

// Names in the list `key` of a description that the library `datasets` writes with a folder; nullopt without one.
std::optional<std::vector<std::string>> listed_names(const fs::path& description, const char* key) {
  std::error_code ignored;
  if (!fs::is_regular_file(description, ignored)) return std::nullopt;
  const Json value = Json::parse(read_file(description, kMaxCardBytes), {.source = description.string()});
  const Json* list = value.is_object() ? value.find(key) : nullptr;
  if (list == nullptr || !list->is_array()) return std::nullopt;
  std::vector<std::string> names;
  for (const Json& item : list->as_array()) {
    const Json* name = item.is_object() ? item.find("filename") : &item;
    QUENCH_CHECK_AS(ErrorCode::corrupt, name != nullptr && name->is_string(), "{}: \"{}\" holds {}, expected names",
                    description.string(), key, item.dump());
    const fs::path path = name->as_string();
    QUENCH_CHECK_AS(ErrorCode::corrupt, path.has_filename() && path == path.filename() && path != "." && path != "..",
                    "{}: \"{}\" names \"{}\", which is not in its folder", description.string(), key, path.string());
    QUENCH_CHECK_AS(ErrorCode::not_found, fs::exists(description.parent_path() / path, ignored),
                    "{}: \"{}\" names {}, which does not exist; was the data set copied whole?", description.string(),
                    key, path.string());
    names.push_back(path.string());
  }
  return names;
}

void collect(const fs::path& root, const fs::path& folder, int depth, std::vector<FolderFile>& files) {
  // A folder of save_to_disk: older files may lie next to its own.
  if (const auto names = listed_names(folder / "state.json", "_data_files")) {
    for (const std::string& name : *names)
      if (const TextFormat* format = text_format_of(folder / name))
        files.push_back(folder_file(root, folder / name, format));
    return;
  }
  if (const auto splits = listed_names(folder / "dataset_dict.json", "splits")) {
    for (const std::string& split : *splits)
      if (depth < kMaxFolderDepth) collect(root, folder / split, depth + 1, files);
    return;
  }
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  QUENCH_CHECK_AS(ErrorCode::io, !error, "cannot list {}: {}", folder.string(), error.message());
  for (const fs::directory_entry& entry : entries) {
    if (is_left_out(entry.path())) continue;
    if (entry.is_directory(error)) {
      if (depth < kMaxFolderDepth) collect(root, entry.path(), depth + 1, files);
    } else if (const TextFormat* format = entry.is_regular_file(error) ? text_format_of(entry.path()) : nullptr) {
      files.push_back(folder_file(root, entry.path(), format));
    }
  }
}

// For messages.
template <class Name>
std::string names_of(const std::vector<FolderFile>& files, Name name) {
  std::set<std::string> names;
  for (const FolderFile& file : files) names.insert(std::string(name(file)));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string parent_of(const FolderFile& file) {
  return file.path.parent_path().string();
}

// Only if every file has one: among texts they may be incidental.
void use_words(std::vector<FolderFile>& files) {
  const auto named = [](const FolderFile& file) { return !file.split.empty(); };
  const auto worded = [](const FolderFile& file) { return !file.word.empty(); };
  if (std::ranges::any_of(files, named) || !std::ranges::all_of(files, worded)) return;
  for (FolderFile& file : files) file.name = file.split = file.word;
}

std::vector<FolderFile> choose_split(const fs::path& folder, std::vector<FolderFile> files, DataSplit split) {
  const auto with = [&](std::string_view wanted) {
    std::vector<FolderFile> chosen;
    std::ranges::copy_if(files, std::back_inserter(chosen), [&](const FolderFile& f) { return f.split == wanted; });
    return chosen;
  };
  const std::vector<FolderFile> without = with({});
  if (without.size() == files.size()) return files;
  std::vector<FolderFile> chosen = with(split == DataSplit::train ? "train" : "validation");
  if (chosen.empty() && split == DataSplit::validation) chosen = with("test");
  if (chosen.empty() && split == DataSplit::train) chosen = without;
  QUENCH_CHECK_AS(ErrorCode::not_found, !chosen.empty(),
                  "{} holds no {} split; its splits: {}; name the files that you mean, as {}/*", folder.string(),
                  split == DataSplit::train ? "train" : "validation or test",
                  names_of(files, [](const FolderFile& f) { return f.name.empty() ? "(none)" : f.name; }),
                  parent_of(files.front()));
  return chosen;
}

std::vector<fs::path> data_of_folder(const fs::path& folder, DataSplit split) {
  std::vector<FolderFile> files;
  collect(folder, folder, 0, files);
  const auto holds_records = [](const FolderFile& file) { return file.format->open_records != nullptr; };
  if (std::ranges::any_of(files, holds_records)) std::erase_if(files, std::not_fn(holds_records));
  QUENCH_CHECK_AS(ErrorCode::not_found, !files.empty(),
                  "{} holds no files of text or records ({}); name its files, as {}/*.bin", folder.string(),
                  fmt::join(text_formats().names(), ", "), folder.string());
  std::ranges::sort(files, {}, &FolderFile::path);
  use_words(files);
  const std::size_t all = files.size();
  files = choose_split(folder, std::move(files), split);
  const FolderFile& first = files.front();
  const auto pattern = [&](const FolderFile& file) { return (file.path.parent_path() / "*").string(); };
  for (const FolderFile& file : files) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, file.format == first.format,
                    "{} holds files of several formats ({}); name those that you mean, as {}{}", folder.string(),
                    names_of(files, [](const FolderFile& f) { return f.format->name; }), pattern(first),
                    first.path.extension().string());
    QUENCH_CHECK_AS(ErrorCode::bad_config, file.set == first.set || !holds_records(file),
                    "{} holds several data sets ({}); name the folder of one", folder.string(),
                    names_of(files, [](const FolderFile& f) { return f.set.empty() ? "." : f.set; }));
    QUENCH_CHECK_AS(ErrorCode::bad_config, file.name == first.name,
                    "{} holds several {} splits ({}); name the files of one, as {}", folder.string(), first.split,
                    names_of(files, [](const FolderFile& f) { return f.name; }),
                    (first.path.parent_path() / (first.name + "-*")).string());
  }
  QUENCH_LOG_INFO("{}: {} of {} files{}{}, from {}", folder.string(), files.size(), all,
                  first.split.empty() ? "" : " hold the split ", first.name, first.path.filename().string());
  std::vector<fs::path> paths;
  for (const FolderFile& file : files) paths.push_back(file.path);
  return paths;
}

// `path` of a card, which may come from anybody: below its folder, where links may lead to the blobs of the Hugging
// Face cache (snapshots/<revision>/ next to blobs/) alone.
void require_below(const fs::path& folder, const std::string& named, const fs::path& path) {
  std::error_code error;
  const fs::path root = fs::weakly_canonical(folder, error), target = fs::weakly_canonical(path, error);
  const fs::path snapshots = root.parent_path(), relative = target.lexically_relative(root);
  const bool below = !relative.empty() && *relative.begin() != "..";
  const bool cached = snapshots.filename() == "snapshots" && target.parent_path() == snapshots.parent_path() / "blobs";
  QUENCH_CHECK_AS(ErrorCode::bad_config, !error && (below || cached),
                  "{}: \"{}\" leads to {}, outside of the data set's folder; a card may name files below it only: if "
                  "you trust it, name the files themselves",
                  (folder / kCard).string(), named, target.string());
}

std::vector<fs::path> matches(const fs::path& folder, const std::vector<std::string>& patterns) {
  std::vector<fs::path> found;
  for (const std::string& pattern : patterns) {
    const fs::path path = folder / pattern;
    require_below(folder, pattern, path);
    std::error_code ignored;
    try {
      if (!fs::is_directory(path, ignored))
        for (const fs::path& file : expand_file_patterns({path.string()})) {
          require_below(folder, pattern, file);
          found.push_back(file);
        }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::not_found) throw;
    }
  }
  std::erase_if(found, [](const fs::path& path) {
    std::error_code ignored;
    return !fs::is_regular_file(path, ignored);
  });
  return found;
}

// Empty if none exist.
std::vector<fs::path> files_of_card(const fs::path& folder, DataSplit split) {
  std::error_code ignored;
  const fs::path card = folder / kCard;
  if (!fs::is_regular_file(card, ignored) || fs::file_size(card, ignored) > kMaxCardBytes) return {};
  std::vector<CardConfig> configs = card_configs(read_file(card, kMaxCardBytes));
  std::erase_if(configs, [&](const CardConfig& config) {
    require_below(folder, config.folder, folder / config.folder);
    if (config.splits.empty()) return config.folder.empty() || !fs::is_directory(folder / config.folder, ignored);
    return std::ranges::all_of(config.splits, [&](const auto& one) { return matches(folder, one.second).empty(); });
  });
  if (configs.empty()) return {};
  const auto chosen = std::ranges::find_if(configs, &CardConfig::is_default);
  std::vector<std::string> names;
  for (const CardConfig& config : configs) names.push_back(config.name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, chosen != configs.end() || configs.size() == 1,
                  "the data-set card of {} names several data sets ({}) and no default; name the files of one",
                  folder.string(), fmt::join(names, ", "));
  const CardConfig& config = chosen != configs.end() ? *chosen : configs.front();
  if (config.splits.empty()) {
    const std::vector<fs::path> found = data_of_folder(folder / config.folder, split);
    for (const fs::path& file : found) require_below(folder, config.folder, file);
    return found;
  }
  for (const std::string_view wanted : {split == DataSplit::train ? "train" : "validation", "test"}) {
    std::vector<std::string> splits;
    std::vector<fs::path> found;
    for (const auto& [name, patterns] : config.splits) {
      if (split_of_name(name) != wanted) continue;
      splits.push_back(name);
      found = matches(folder, patterns);
      if (name == wanted) break;
    }
    if (!splits.empty() && splits.back() != wanted)
      QUENCH_CHECK_AS(ErrorCode::bad_config, splits.size() == 1,
                      "the data-set card of {} names several {} splits ({}); name the files of one", folder.string(),
                      wanted, fmt::join(splits, ", "));
    if (!found.empty()) {
      QUENCH_LOG_INFO("{}: {} files hold the split {} of its card, from {}", folder.string(), found.size(),
                      splits.back(), found.front().filename().string());
      return found;
    }
    if (split == DataSplit::train) break;
  }
  names.clear();
  for (const auto& [name, patterns] : config.splits) names.push_back(name);
  QUENCH_FAIL(ErrorCode::not_found, "{} holds no {} split; those of its card: {}; name the files that you mean",
              folder.string(), split == DataSplit::train ? "train" : "validation or test", fmt::join(names, ", "));
}

// Empty for other folders.
std::vector<fs::path> shards_of_folder(const fs::path& folder, DataSplit split) {
  std::error_code ignored;
  std::vector<fs::path> shards;
  if (!fs::exists(folder / "dataset.json", ignored)) return shards;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool train = name.starts_with("train-") && name.ends_with(".bin");
    if (split == DataSplit::train ? train : name == "val.bin") shards.push_back(entry.path());
  }
  std::ranges::sort(shards);
  return shards;
}

}  // namespace

std::vector<fs::path> expand_data_files(const std::vector<std::string>& patterns, DataSplit split) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    std::error_code ignored;
    if (!fs::is_directory(pattern, ignored)) {
      files.push_back(pattern);
      continue;
    }
    std::vector<fs::path> found = shards_of_folder(pattern, split);
    fs::path folder = fs::path(pattern).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    if (found.empty()) found = files_of_card(folder, split);
    if (found.empty()) found = data_of_folder(folder, split);
    for (const fs::path& path : found) files.push_back(path.string());
  }
  return expand_file_patterns(files);
}

}  // namespace quench
