#pragma once
// Manifest entries of one rank's data file, serialized for the manifest's writer.

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
// Inverse; same program version only.
[[nodiscard]] DataFilePart data_file_part(std::string_view text);

// Merges one rank's file and shards by global row. Throws invalid_argument naming the tensor when dtype or global shape
// differ between ranks.
void append_part(Manifest& manifest, const DataFilePart& part);

}  // namespace quench
