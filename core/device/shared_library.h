#pragma once
// Shared library of one major version, loaded at run time.

#include <string>
#include <string_view>
#include <vector>

namespace quench {

struct SharedLibraryName {
  std::string_view product;  // "cuBLASLt", for messages
  std::string_view file;     // "libcublasLt.so"
  int major = 0;             // version of the headers that the program was compiled with
  std::string package;       // "the CUDA 13 libraries", to install
  bool global = false;       // symbols serve libraries that are loaded later
  // Searched after nvidia-* wheels installed with Quench's, and after the dynamic linker's own folders.
  std::vector<std::string> folders = {"/usr/local/cuda/lib64"};
};

class SharedLibrary {
 public:
  // `file`.`major`, else throws unsupported, naming product and file, and any other major version that is installed.
  explicit SharedLibrary(const SharedLibraryName& name);
  // The library at `path`, whatever its version; else throws unsupported.
  SharedLibrary(const SharedLibraryName& name, const std::string& path);

  // Throws unsupported, naming the library, for a missing function (another version).
  template <class Function>
  void bind(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
  }
  [[nodiscard]] void* symbol(const char* name) const;

  // Path of the loaded file.
  [[nodiscard]] std::string path() const;

 private:
  std::string product_;
  std::string package_;
  void* handle_ = nullptr;  // never closed: may run at exit
};

// "cuBLASLt: found PATH of major version 12, this program needs 13 (libcublasLt.so.13); install ...".
[[nodiscard]] std::string other_major_message(const SharedLibraryName& name, std::string_view found, int found_major);

}  // namespace quench
