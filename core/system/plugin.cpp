#include "core/system/plugin.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/system/choice_table.h"
#include "core/system/file.h"
#include "core/system/printable.h"

namespace quench {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr std::string_view kMarker = "quench plug-in of release ";

std::atomic<std::size_t> registered{0};

// State of the plug-in being loaded; null: none is. Static initialization of a plug-in runs in the loading thread.
struct Loading {
  std::string path;
  std::exception_ptr error{};  // first one of a registration
  std::terminate_handler on_terminate = nullptr;
};
thread_local Loading* loading = nullptr;

std::vector<LoadedPlugin>& plugins() {
  static std::vector<LoadedPlugin> loaded;
  return loaded;
}

// "0.3" for "0.3.0".
std::string_view minor_release(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

void require_release(const std::filesystem::path& path) {
  const std::string bytes = read_file(path, kMostBytes);
  std::string release;
  // Libraries that contain this file have the marker alone.
  for (std::size_t at = bytes.find(kMarker); at != std::string::npos && release.empty();
       at = bytes.find(kMarker, at + 1)) {
    const std::size_t begin = at + kMarker.size(), end = bytes.find(';', begin);
    if (end != std::string::npos && end - begin < 32 && bytes[begin] >= '0' && bytes[begin] <= '9')
      release = bytes.substr(begin, end - begin);
  }
  QUENCH_CHECK_AS(ErrorCode::unsupported, !release.empty(),
                  "{} is no plug-in: it has no descriptor; build a shared library with one QUENCH_PLUGIN(\"name\", "
                  "\"version\") (quench/plugin.h)",
                  path.string());
  QUENCH_CHECK_AS(ErrorCode::unsupported, minor_release(release) == minor_release(QUENCH_VERSION),
                  "plug-in {} was built for release {}, this is {}; build it anew against the headers of {}",
                  path.string(), release, QUENCH_VERSION, QUENCH_VERSION);
}

const LoadedPlugin* find_plugin(const std::filesystem::path& path) {
  const auto found = std::ranges::find(plugins(), path, &LoadedPlugin::path);
  return found == plugins().end() ? nullptr : &*found;
}

// Text of the exception.
std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

ErrorCode code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.code();
  } catch (...) {
    return ErrorCode::failed;
  }
}

// An exception leaves the static initialization of the plug-in being loaded.
[[noreturn]] void name_plugin_and_end() {
  std::terminate_handler next = std::abort;
  if (loading != nullptr) {
    if (loading->on_terminate != nullptr) next = loading->on_terminate;
#ifdef __GLIBCXX__
    if (next == __gnu_cxx::__verbose_terminate_handler) next = std::abort;  // would print the text as it is
#endif
    const std::exception_ptr error = std::current_exception();
    const std::string line = fmt::format(
        "error: plug-in {}: its static initialization ends the process: {}; load_plugin() throws only what a function "
        "given to quench::Registered throws\n",
        loading->path, error ? text_of(error) : "std::terminate was called");
    std::fputs(printable(line).c_str(), stderr);
  }
  next();
  std::abort();
}

// dlopen(), with `state` for what runs in it.
void* open_library(Loading& state) {
  loading = &state;
  state.on_terminate = std::set_terminate(name_plugin_and_end);
  void* handle = ::dlopen(state.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  // Not where the plug-in has set one of its own.
  if (std::get_terminate() == name_plugin_and_end) std::set_terminate(state.on_terminate);
  loading = nullptr;
  return handle;
}

}  // namespace

namespace detail {

std::size_t registered_entries() noexcept {
  return registered.load();
}

void count_registered_entry() noexcept {
  ++registered;
}

void fail_registration(std::exception_ptr error) {
  if (loading == nullptr) std::rethrow_exception(std::move(error));
  if (!loading->error) loading->error = std::move(error);
}

std::string loading_plugin() {
  return loading != nullptr ? loading->path : std::string();
}

}  // namespace detail

LoadedPlugin load_plugin(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  QUENCH_CHECK_AS(ErrorCode::not_found, !error && std::filesystem::is_regular_file(whole, error),
                  "plug-in {} does not exist; name the file of a shared library", path.string());
  if (const LoadedPlugin* known = find_plugin(whole)) return *known;
  require_release(whole);

  Loading state{.path = whole.string()};
  void* handle = open_library(state);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    QUENCH_FAIL(ErrorCode::unsupported,
                "plug-in {} cannot be loaded: {}; build it against the headers of "
                "release {}, and give it the libraries that it needs",
                path.string(), reason != nullptr ? reason : "unknown reason", QUENCH_VERSION);
  }
  const auto* descriptor = static_cast<const PluginDescriptor*>(::dlsym(handle, "quench_plugin"));
  QUENCH_CHECK_AS(ErrorCode::unsupported,
                  descriptor != nullptr && descriptor->size == sizeof(PluginDescriptor) &&
                      descriptor->name != nullptr && descriptor->version != nullptr,
                  "{} is no plug-in of this release: its descriptor quench_plugin is missing or of another size",
                  path.string());
  if (state.error)
    QUENCH_FAIL(code_of(state.error), "plug-in '{}' of {}: {}", descriptor->name, path.string(), text_of(state.error));
  const auto same = std::ranges::find(plugins(), std::string_view(descriptor->name), &LoadedPlugin::name);
  QUENCH_CHECK_AS(ErrorCode::bad_config, same == plugins().end(),
                  "plug-in '{}' of {} is loaded already, from {}; name one of the two", descriptor->name, path.string(),
                  same == plugins().end() ? "" : same->path.string());
  return plugins().emplace_back(LoadedPlugin{descriptor->name, descriptor->version, whole});
}

const std::vector<LoadedPlugin>& loaded_plugins() {
  return plugins();
}

}  // namespace quench
