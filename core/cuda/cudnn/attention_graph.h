#pragma once
// Cache of cuDNN attention graphs.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/cuda/cudnn/library.h"

namespace quench::cuda {

enum AttentionOperand : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kLse,
  kDout,
  kDq,
  kDk,
  kDv,
  kQueryLengths,
  kKeyLengths,
  kOffsets = 100,  // packed: offsets of operand x at kOffsets + x
};

struct HeadStrides {  // elements
  std::int64_t row = 0, head = 0;
  auto operator<=>(const HeadStrides&) const = default;
};

struct AttentionGraphKey {
  int device = 0;
  bool backward = false, packed = false, causal = false, bottom_right = false, lse = false, deterministic = false;
  bool wide_offsets = false;  // 64-bit
  std::int64_t window = 0;    // AttentionArgs::window
  float scale = 1;
  std::int64_t heads = 0, kv_heads = 0, dim = 0;
  std::int64_t batch = 0, queries = 0, keys = 0;   // sequences, maximum lengths
  std::int64_t total_queries = 0, total_keys = 0;  // workspace rows; 0: batch times maximum length
  HeadStrides q, k, v, out, dq, dk, dv;
  auto operator<=>(const AttentionGraphKey&) const = default;
};

class AttentionGraph {
 public:
  // Never null; refused(): reason of an unsupported graph. The session is of the key's device. Compilation takes a few
  // tenths of a second.
  static std::shared_ptr<const AttentionGraph> get(const AttentionGraphKey& key, const CudnnSession& session);

  [[nodiscard]] const std::string& refused() const noexcept { return refused_; }
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept { return workspace_bytes_; }
  // False, with the reason, on failure.
  [[nodiscard]] bool run(const CudnnSession& session, std::unordered_map<std::int64_t, void*>& addresses,
                         void* workspace, std::string& reason) const;

  ~AttentionGraph();

 private:
  struct Graph;
  AttentionGraph() = default;
  void build(const AttentionGraphKey& key, const CudnnSession& session);

  std::unique_ptr<Graph> graph_;
  std::int64_t workspace_bytes_ = 0;
  std::string refused_;
};

}  // namespace quench::cuda
