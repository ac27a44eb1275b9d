#pragma once
// Plug-ins: shared libraries that register table entries (Registered, choice_table.h) and kernels (kernel_slot.h).
//
//   #include <quench/plugin.h>
//   QUENCH_PLUGIN("my_recipe", "1.0")
//   const quench::Registered<quench::recipes::Recipe> kMine{{.name = "mine", ...}};
//
// Built against the headers of the program's release (target quench::plugin), linked to no library of it.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/system/version.h"

namespace quench {

// Exported by a plug-in as `quench_plugin` (QUENCH_PLUGIN).
struct PluginDescriptor {
  std::uint32_t size = sizeof(PluginDescriptor);
  const char* name = nullptr;
  const char* version = nullptr;
};

// Result of load_plugin().
struct LoadedPlugin {
  std::string name;
  std::string version;
  std::filesystem::path path;  // absolute
};

// Loads a plug-in for the rest of the process; again the same file: no effect. Call while no other thread uses the
// library. Throws
// - not_found for a missing file;
// - unsupported for a file that is no plug-in, is of another minor release (before any of its code runs), or needs
//   symbols that this build lacks;
// - bad_config for another plug-in of the same name, or one that registers a name that a table has; before a table's
//   first use, that use throws it;
// - the code of an Error of a function that the plug-in gave to Registered; failed for another exception of it.
// Any other exception out of the plug-in's static initialization ends the process, with a message that names the file.
LoadedPlugin load_plugin(const std::filesystem::path& path);

// In load order.
[[nodiscard]] const std::vector<LoadedPlugin>& loaded_plugins();

}  // namespace quench

// At namespace scope of one file of a plug-in: its name and version. The release is read from the file before it is
// loaded.
#define QUENCH_PLUGIN(plugin_name, plugin_version)                                                                 \
  extern "C" {                                                                                                     \
  __attribute__((visibility("default"))) extern const char quench_plugin_release[];                                \
  const char quench_plugin_release[] = "quench plug-in of release " QUENCH_VERSION ";";                            \
  __attribute__((visibility("default"))) extern const ::quench::PluginDescriptor quench_plugin;                    \
  const ::quench::PluginDescriptor quench_plugin{sizeof(::quench::PluginDescriptor), plugin_name, plugin_version}; \
  }
