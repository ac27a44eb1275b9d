# Files of the source tree as constants of the program. In script mode (-P) this file writes them as C++.
#
# quench_embed_configs(target): compiles configs/<kind>/<name>.json into `target` as the table that
# train/config/presets.h declares.
# quench_embed_text(target file header function): compiles a file into `target` as the std::string_view that `function`,
# declared in `header`, returns.

if(CMAKE_SCRIPT_MODE_FILE AND CONFIG_DIR)
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
  file(WRITE ${OUTPUT} "// Written by cmake/EmbedFiles.cmake.
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
elseif(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${FILE} text)
  file(WRITE ${OUTPUT} "// Written by cmake/EmbedFiles.cmake.
#include \"${HEADER}\"

std::string_view quench::${FUNCTION}() noexcept { return R\"embedded(${text})embedded\"; }
")
  return()
endif()

# Adds `output` to the target's sources, written by this file in script mode with the definitions in ARGN from `inputs`.
function(quench_embed target output inputs)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} ${ARGN} -DOUTPUT=${output} -P ${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${inputs} ${CMAKE_SOURCE_DIR}/cmake/EmbedFiles.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()

function(quench_embed_configs target)
  file(GLOB_RECURSE configs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/*.json)
  quench_embed(${target} ${CMAKE_BINARY_DIR}/generated/embedded_configs.cpp "${configs}"
               -DCONFIG_DIR=${CMAKE_SOURCE_DIR}/configs)
endfunction()

function(quench_embed_text target file header function)
  quench_embed(${target} ${CMAKE_BINARY_DIR}/generated/${function}.cpp ${CMAKE_SOURCE_DIR}/${file}
               -DFILE=${CMAKE_SOURCE_DIR}/${file} -DHEADER=${header} -DFUNCTION=${function})
endfunction()
