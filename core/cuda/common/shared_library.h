#pragma once
// A shared library of the CUDA toolkit, found at run time.

#include <initializer_list>
#include <string>
#include <string_view>

namespace quench::cuda {

class SharedLibrary {
 public:
  // The first of `names` that the dynamic linker finds, in its own order (LD_LIBRARY_PATH, the system's cache) or in
  // the toolkit's usual folder. Throws unsupported naming `product` and what to do.
  SharedLibrary(std::string_view product, std::initializer_list<const char*> names);

  // Throws unsupported when the library has no such function (it is older than the headers).
  template <class Function>
  void bind(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(symbol(name));
  }

 private:
  [[nodiscard]] void* symbol(const char* name) const;

  std::string product_;
  void* handle_ = nullptr;  // never closed: functions of it may run at exit
};

}  // namespace quench::cuda
