# Configs of the source tree as constants of the program.
#
# quench_embed_configs(target): compiles configs/<kind>/<name>.json into `target` as the table that
# train/config/presets.h declares. In script mode (-P) this file writes that table.

if(CMAKE_SCRIPT_MODE_FILE)
  file(GLOB_RECURSE files RELATIVE ${CONFIG_DIR} ${CONFIG_DIR}/*.json)
  list(SORT files)
  set(rows "")
  set(count 0)
  foreach(file IN LISTS files)
    get_filename_component(kind ${file} DIRECTORY)
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE "\\.json$" "" name ${name})
    file(READ ${CONFIG_DIR}/${file} text)
    string(APPEND rows "    {\"${kind}\", \"${name}\", R\"config_json(${text})config_json\"},\n")
    math(EXPR count "${count} + 1")
  endforeach()
  file(WRITE ${OUTPUT} "// Written by cmake/EmbedConfigs.cmake.
#include \"train/config/presets.h\"

namespace quench {
namespace {

constexpr EmbeddedConfig kConfigs[${count}] = {
${rows}};

}  // namespace

std::span<const EmbeddedConfig> embedded_configs() { return kConfigs; }

}  // namespace quench
")
  return()
endif()

function(quench_embed_configs target)
  set(output ${CMAKE_BINARY_DIR}/generated/embedded_configs.cpp)
  file(GLOB_RECURSE configs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/*.json)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DCONFIG_DIR=${CMAKE_SOURCE_DIR}/configs -DOUTPUT=${output}
            -P ${CMAKE_SOURCE_DIR}/cmake/EmbedConfigs.cmake
    DEPENDS ${configs} ${CMAKE_SOURCE_DIR}/cmake/EmbedConfigs.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
