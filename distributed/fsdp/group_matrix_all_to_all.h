#pragma once
// The exchange of rows between the processes that share one copy of a model.

#include <memory>

#include "distributed/process_group.h"
#include "nn/optim/matrix_all_to_all.h"

namespace quench::distributed {

// Null for a group of one process: every parameter is whole there.
[[nodiscard]] std::shared_ptr<nn::MatrixAllToAll> make_matrix_all_to_all(std::shared_ptr<ProcessGroup> shard);

}  // namespace quench::distributed
