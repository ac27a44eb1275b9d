#pragma once
// All-to-all of matrix rows within a model replica.

#include <memory>

#include "distributed/process_group.h"
#include "nn/optim/matrix_all_to_all.h"

namespace quench::distributed {

// Null for a group of one process.
[[nodiscard]] std::shared_ptr<nn::MatrixAllToAll> make_matrix_all_to_all(std::shared_ptr<ProcessGroup> shard);

}  // namespace quench::distributed
