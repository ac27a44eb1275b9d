#pragma once
// Attention through cuDNN graphs.

#include <string>

#include "core/cuda/cudnn/attention_layout.h"

namespace quench::cuda {

// False, with the reason and no output written, if unsupported by cuDNN. `layout`: uniform or packed. Rows outside
// every sequence are not written.
[[nodiscard]] bool cudnn_attention(const AttentionArgs& args, AttentionLayout layout, std::string& reason);
[[nodiscard]] bool cudnn_attention_backward(const AttentionBackwardArgs& args, AttentionLayout layout,
                                            std::string& reason);

}  // namespace quench::cuda
