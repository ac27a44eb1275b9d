#pragma once
// Algorithms chosen for matrix products, kept in a file, so that a later run has them from its first step.

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/cuda/gemm/cublaslt_library.h"

namespace quench::cuda {

// $QUENCH_GEMM_CACHE as a folder, else $XDG_CACHE_HOME/quench, else ~/.cache/quench; nothing when that variable is set
// and empty, or there is no home.
[[nodiscard]] std::filesystem::path gemm_choices_folder();

class GemmChoices {
 public:
  // Reads "gemm-<device>-<library version>.json" of the folder. A file that cannot be read is as good as none: a
  // warning, and everything is chosen again. An empty folder keeps choices in memory only.
  GemmChoices(const std::filesystem::path& folder, std::string_view device, std::size_t library_version);

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
