#pragma once
// What a manifest says of one process's data file, as that process describes it to the one that writes the manifest.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/checkpoint/data_file.h"
#include "train/checkpoint/manifest.h"

namespace quench {

struct DataFilePart {
  struct Tensor {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;  // global
    ShardRecord shard;
  };
  DataFileRecord record;
  std::vector<Tensor> tensors;
};

[[nodiscard]] DataFilePart describe(const DataFilePlan& plan, std::span<const CheckpointTensor> tensors);

[[nodiscard]] std::string to_text(const DataFilePart& part);
// The inverse, between processes of one program.
[[nodiscard]] DataFilePart data_file_part(std::string_view text);

// Adds one process's file and shards to the manifest, merging the parts of each tensor by global row. Throws
// invalid_argument naming the tensor when dtype or global shape differ between processes.
void append_part(Manifest& manifest, const DataFilePart& part);
// The same for a file of this process.
void append_data_file(Manifest& manifest, const DataFilePlan& plan, std::span<const CheckpointTensor> tensors);

}  // namespace quench
