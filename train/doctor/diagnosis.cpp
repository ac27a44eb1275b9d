#include "train/doctor/diagnosis.h"

#include <algorithm>
#include <cstdlib>

#include "core/device/cpu_level.h"
#include "core/self_test/verdict_cache.h"
#include "recipes/float8/hardware.h"
#include "train/doctor/build_info.h"
#include "train/doctor/kernel_check.h"

namespace quench {
namespace {

using recipes::GemmPath;

std::string_view to_string(GemmPath path) {
  switch (path) {
    case GemmPath::native: return "native";
    case GemmPath::fallback: return "fallback";
    case GemmPath::emulated: return "emulated";
  }
  return "unknown";
}

GemmPath path_of(const recipes::Recipe& recipe, Device device) {
  if (!recipe.capabilities.float8.empty()) return recipes::float8_path(device, recipe.capabilities.float8_kind);
  if (recipe.capabilities.mxfp8) return recipes::mxfp8_path(device);
  return GemmPath::native;
}

DeviceDiagnosis diagnose_device(Device device) {
  const Backend& owner = backend(device.type);
  DeviceDiagnosis result{.device = device,
                         .name = owner.device_name(device),
                         .capability = owner.compute_capability(device),
                         .memory = owner.memory(device).total_bytes,
                         .recipes = recipe_paths(device),
                         .self_test = run_self_test(device)};
  if (device.type == DeviceType::cuda && broken_kernel_families().empty())
    write_verdict(verdict_folder(), verdict_key(device, library_versions(device.type)), result.self_test);
  return result;
}

std::string dotted(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

std::string recipes_on(const std::vector<RecipePath>& paths, std::string_view path) {
  std::string names;
  for (const RecipePath& entry : paths)
    if (entry.path == path) names += (names.empty() ? "" : ", ") + entry.recipe;
  return names;
}

std::string describe(const DeviceDiagnosis& d) {
  std::string text = fmt::format("\n{}: {}, ", d.device.to_string(), d.name);
  if (d.device.type == DeviceType::cuda)
    text += fmt::format("compute capability {}, kernels compiled for {}, ", dotted(d.capability.device),
                        dotted(d.capability.code));
  else
    text += fmt::format("{}, ", cpu_level_name());
  text += fmt::format("{:.1f} GiB\n", static_cast<double>(d.memory) / (1 << 30));
  for (const std::string_view path : {"native", "fallback", "emulated"})
    if (const std::string names = recipes_on(d.recipes, path); !names.empty())
      text += fmt::format("  {:<11}{}\n", path, names);
  text += fmt::format("  self-test  {} families of kernels passed, {} failed, {} not used, {:.1f} s\n",
                      count(d.self_test, FamilyStatus::passed), count(d.self_test, FamilyStatus::failed),
                      count(d.self_test, FamilyStatus::not_used), d.self_test.seconds);
  for (const std::string& line : replacement_lines(d.self_test, d.name)) text += "  failed     " + line + "\n";
  if (const std::string fatal = fatal_failures(d.self_test); !fatal.empty())
    text += fmt::format("  failed     without a fallback: {}\n", fatal);
  return text;
}

std::string describe(const distributed::GpuLinks& links) {
  std::string missing;
  for (std::size_t i = 0; i < links.peer_access.size(); ++i)
    for (std::size_t j = 0; j < links.peer_access.size(); ++j)
      if (i != j && !links.peer_access[i][j]) missing += fmt::format("{}{}->{}", missing.empty() ? "" : ", ", i, j);
  std::string text = "\nlinks\n";
  if (!links.peer_access.empty())
    text += fmt::format("  {:<11}{}\n", "peer access", missing.empty() ? " among all GPUs" : " not for " + missing);
  return text + fmt::format("  {:<12}{}\n", "NCCL",
                            links.nccl_problem.empty() ? "the all-reduce among all GPUs gives the right sums"
                                                       : links.nccl_problem);
}

std::string place_of(std::string_view path) {
  const char* home = std::getenv("HOME");
  if (path.starts_with("/usr/local/cuda")) return "CUDA toolkit";
  if (path.starts_with("/usr/lib") || path.starts_with("/lib")) return "system";
  if (home != nullptr && *home != '\0' && path.starts_with(home)) return "home folder";
  return "other folder";
}

std::string file_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
}

// Whole words only.
std::string without_word(std::string text, std::string_view word) {
  for (std::size_t at = 0; !word.empty() && (at = text.find(word, at)) != std::string::npos;) {
    const std::size_t end = at + word.size();
    const bool whole =
        (at == 0 || !is_name_character(text[at - 1])) && (end == text.size() || !is_name_character(text[end]));
    if (whole) text.replace(at, word.size(), "<user>");
    at += whole ? 6 : word.size();
  }
  return text;
}

Json scrubbed(const Json& json) {
  if (json.is_string()) return without_paths(json.as_string());
  if (json.is_array()) {
    Json result = Json::array();
    for (const Json& item : json.as_array()) result.push_back(scrubbed(item));
    return result;
  }
  if (!json.is_object()) return json;
  Json result = Json::object();
  for (const auto& [key, value] : json.as_object()) result.set(key, scrubbed(value));
  return result;
}

}  // namespace

std::vector<RecipePath> recipe_paths(Device device) {
  std::vector<RecipePath> paths;
  for (const recipes::Recipe& recipe : recipes::recipe_table())
    paths.push_back({std::string(recipe.name), std::string(to_string(path_of(recipe, device)))});
  return paths;
}

bool Diagnosis::healthy() const {
  return std::ranges::all_of(devices,
                             [](const DeviceDiagnosis& d) { return count(d.self_test, FamilyStatus::failed) == 0; }) &&
         (!links || links->nccl_problem.empty());
}

Diagnosis diagnose() {
  Diagnosis result;
  const bool cuda = has_backend(DeviceType::cuda);
  const int gpus = cuda ? backend(DeviceType::cuda).device_count() : 0;
  if (gpus == 0)
    result.no_gpu = cuda ? backend(DeviceType::cuda).unavailable_reason() : "this build has no CUDA back end";
  result.disabled = disabled_kernel_families();
  result.libraries = library_versions();
  for (int i = 0; i < gpus; ++i)
    result.devices.push_back(diagnose_device({DeviceType::cuda, static_cast<std::int8_t>(i)}));
  if (gpus == 0) result.devices.push_back(diagnose_device({}));
  if (gpus > 1) result.links = distributed::check_gpu_links(gpus);
  return result;
}

std::string to_string(const Diagnosis& diagnosis) {
  std::string text =
      fmt::format("quench {} ({}), {}, {}\n", kBuildInfo.version,
                  kBuildInfo.commit.empty() ? "no commit" : kBuildInfo.commit, kBuildInfo.compiler, kBuildInfo.type);
  if (!diagnosis.no_gpu.empty())
    text += fmt::format("no GPU: CPU kernels checked against the stored vectors; {}\n", diagnosis.no_gpu);
  text += "\nlibraries\n";
  for (const LibraryVersion& library : diagnosis.libraries)
    text +=
        fmt::format("  {:<15}{}{}{}\n", library.name, library.version, library.path.empty() ? "" : "  " + library.path,
                    library.missing.empty() ? "" : ": " + library.missing);
  for (const DeviceDiagnosis& device : diagnosis.devices) text += describe(device);
  for (const KernelFamilyInfo& family : kernel_families())
    if (diagnosis.disabled.contains(family.family))
      text += fmt::format("\nswitched off: {}; its fallback is used: {}\n", family.name, family.fallback);
  if (diagnosis.links) text += describe(*diagnosis.links);
  return text;
}

Json to_json(const Diagnosis& diagnosis) {
  Json libraries = Json::array();
  for (const LibraryVersion& library : diagnosis.libraries) {
    Json entry(Json::Object{{"name", library.name}, {"version", library.version}});
    if (!library.path.empty()) {
      entry.set("file", file_name(library.path));
      entry.set("found_in", place_of(library.path));
    }
    if (!library.missing.empty()) entry.set("missing", library.missing);
    libraries.push_back(std::move(entry));
  }
  Json devices = Json::array();
  for (const DeviceDiagnosis& d : diagnosis.devices) {
    Json paths = Json::object();
    for (const RecipePath& entry : d.recipes) paths.set(entry.recipe, entry.path);
    Json device(Json::Object{{"device", d.device.to_string()}, {"name", d.name}});
    if (d.device.type == DeviceType::cuda) {
      device.set("compute_capability", dotted(d.capability.device));
      device.set("code_capability", dotted(d.capability.code));
    } else {
      device.set("cpu_level", std::string(cpu_level_name()));
    }
    device.set("memory_bytes", d.memory);
    device.set("recipes", std::move(paths));
    device.set("self_test", to_json(d.self_test));
    devices.push_back(std::move(device));
  }
  Json disabled = Json::array();
  for (const KernelFamilyInfo& family : kernel_families())
    if (diagnosis.disabled.contains(family.family)) disabled.push_back(family.name);
  Json json(Json::Object{{"version", kBuildInfo.version},
                         {"commit", kBuildInfo.commit.empty() ? Json() : Json(kBuildInfo.commit)},
                         {"compiler", kBuildInfo.compiler},
                         {"build_type", kBuildInfo.type},
                         {"healthy", diagnosis.healthy()},
                         {"no_gpu", diagnosis.no_gpu.empty() ? Json() : Json(diagnosis.no_gpu)},
                         {"libraries", std::move(libraries)},
                         {"devices", std::move(devices)},
                         {"disabled_kernel_families", std::move(disabled)}});
  if (diagnosis.links) {
    Json peers = Json::array();
    for (const std::vector<bool>& row : diagnosis.links->peer_access) {
      Json line = Json::array();
      for (const bool access : row) line.push_back(access);
      peers.push_back(std::move(line));
    }
    const std::string& problem = diagnosis.links->nccl_problem;
    json.set("links", Json(Json::Object{{"peer_access", std::move(peers)},
                                        {"nccl_problem", problem.empty() ? Json() : Json(problem)}}));
  }
  return scrubbed(json);
}

std::string without_paths(std::string_view text) {
  std::string source(text);
  if (const char* home = std::getenv("HOME"); home != nullptr && std::string_view(home).size() > 1)
    for (std::size_t at = 0; (at = source.find(home, at)) != std::string::npos;)
      source.replace(at, std::string_view(home).size(), "~");
  std::string result, word;
  const auto end_word = [&] {
    if (word.find('/') == std::string::npos) {
      result += word;
    } else {
      const std::string name = file_name(word);
      result += name.find(".so") != std::string::npos ? "<path>/" + name : "<path>";
    }
    word.clear();
  };
  for (const char c : source) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0 &&
        std::string_view("'\"(),;:=").find(c) == std::string_view::npos) {
      word += c;
      continue;
    }
    end_word();
    result += c;
  }
  end_word();
  for (const char* variable : {"USER", "LOGNAME"})
    if (const char* user = std::getenv(variable)) result = without_word(std::move(result), user);
  return result;
}

}  // namespace quench
