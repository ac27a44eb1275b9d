#pragma once
// Persistent cache of autotuned cuBLASLt algorithms.

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/cuda/gemm/cublaslt_library.h"

namespace quench::cuda {

// $QUENCH_GEMM_CACHE, else $XDG_CACHE_HOME/quench, else ~/.cache/quench; empty if the first is "", or without a home
// directory.
[[nodiscard]] std::filesystem::path gemm_algo_cache_folder();

class GemmAlgoCache {
 public:
  // Reads the folder's "gemm-<device>-<library version>.json"; ignores an unreadable file with a warning. Empty folder:
  // in memory only.
  GemmAlgoCache(const std::filesystem::path& folder, std::string_view device, std::size_t library_version);

  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> find(const std::string& problem) const;
  // Replaces the file atomically; warns once if not writable.
  void insert(const std::string& problem, const cublasLtMatmulAlgo_t& algorithm);

 private:
  void read();
  void write();

  std::filesystem::path path_;
  std::unordered_map<std::string, cublasLtMatmulAlgo_t> choices_;
  bool warned_ = false;
};

}  // namespace quench::cuda
