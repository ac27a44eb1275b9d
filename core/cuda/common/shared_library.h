#pragma once
// CUDA toolkit library loaded at run time.

#include <initializer_list>
#include <string>
#include <string_view>

namespace quench::cuda {

class SharedLibrary {
 public:
  // First of `names` found by the dynamic linker or in the toolkit's default folder; else throws unsupported, naming
  // `product`.
  SharedLibrary(std::string_view product, std::initializer_list<const char*> names);

  // Throws unsupported for a missing symbol (old library).
  template <class Function>
  void bind(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
  }

 private:
  [[nodiscard]] void* symbol(const char* name) const;

  std::string product_;
  void* handle_ = nullptr;  // never closed: may run at exit
};

}  // namespace quench::cuda
