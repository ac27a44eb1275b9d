#pragma once
// Attention through cuDNN's graphs.

#include <string>

#include "core/cuda/cudnn/attention_layout.h"

namespace quench::cuda {

// False, with the reason, where cuDNN does not take the call; nothing has been written then. `layout` is uniform or
// packed. Rows in no sequence are left alone.
[[nodiscard]] bool cudnn_attention(const AttentionArgs& args, AttentionLayout layout, std::string& reason);
[[nodiscard]] bool cudnn_attention_backward(const AttentionBackwardArgs& args, AttentionLayout layout,
                                            std::string& reason);

}  // namespace quench::cuda
