#pragma once
// File of autotuned cuBLASLt algorithms, so that a later run uses them from its first step.

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/cuda/gemm/cublaslt_library.h"

namespace quench::cuda {

// $QUENCH_GEMM_CACHE as a folder, else $XDG_CACHE_HOME/quench, else ~/.cache/quench; empty if that variable is set and
// empty, or without a home directory.
[[nodiscard]] std::filesystem::path gemm_algo_cache_folder();

class GemmAlgoCache {
 public:
  // Reads "gemm-<device>-<library version>.json" of the folder. An unreadable file is ignored
  // with a warning. With an empty folder the cache lives in memory only.
  GemmAlgoCache(const std::filesystem::path& folder, std::string_view device, std::size_t library_version);

  [[nodiscard]] std::optional<cublasLtMatmulAlgo_t> find(const std::string& problem) const;
  // Also writes the file (whole, replacing it atomically); a file that cannot be written is a warning, once.
  void insert(const std::string& problem, const cublasLtMatmulAlgo_t& algorithm);

 private:
  void read();
  void write();

  std::filesystem::path path_;
  std::unordered_map<std::string, cublasLtMatmulAlgo_t> choices_;
  bool warned_ = false;
};

}  // namespace quench::cuda
