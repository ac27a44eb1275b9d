#pragma once
// The files that a list of files, patterns and folders stands for.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quench {

// Which part of a data set in a folder is asked for.
enum class DataSplit : std::uint8_t {
  train,
  validation,  // its validation split, else its test split
};

// Files and patterns as expand_file_patterns() does; a folder stands for the files in it and below it that hold the
// split, in byte order of their paths:
//   - a folder that quench tokenize wrote: its train or validation shards;
//   - the files that the card of a data set (README.md) names for its only or default configuration;
//   - files of records (JSON lines, Parquet, ...), else files of text. Hidden files, READMEs and files that describe a
//     data set are left out. As on the Hugging Face Hub, a split is told by the file's name
//     (train-00000-of-00003.parquet, test.jsonl) or by a folder's (validation/a.parquet); where no name tells one, all
//     files are either split.
// Throws what expand_file_patterns() throws, not_found for a folder without such files or without the split, and
// bad_config for a folder that holds several data sets or files of several formats, naming what to choose from.
[[nodiscard]] std::vector<std::filesystem::path> expand_data_files(const std::vector<std::string>& patterns,
                                                                   DataSplit split = DataSplit::train);

}  // namespace quench
