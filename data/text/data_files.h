#pragma once
// Expansion of files, patterns and folders to data files.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quench {

enum class DataSplit : std::uint8_t {
  train,
  validation,  // validation split, else test split
};

// Files and patterns as in expand_file_patterns(). A folder expands to the files of the split in its tree, in byte
// order:
// - output of quench tokenize: train or validation shards;
// - data set card (README.md): files of the only or default configuration, below the folder alone;
// - save_to_disk of the library `datasets`: the files and splits that state.json and dataset_dict.json list;
// - otherwise record files (JSON lines, Parquet, ...), else text files, without hidden files, READMEs and metadata. As
// on the Hugging Face Hub, file names (train-00000-of-00003.parquet, test.jsonl) or folder names (validation/a.parquet)
// give the split; without any, files belong to both.
// Throws the errors of expand_file_patterns(); not_found for a folder without such files or split; bad_config, with the
// choices, for several data sets or formats, and for files of a card outside of its folder, through links too (except
// those of the Hugging Face cache).
[[nodiscard]] std::vector<std::filesystem::path> expand_data_files(const std::vector<std::string>& patterns,
                                                                   DataSplit split = DataSplit::train);

}  // namespace quench
