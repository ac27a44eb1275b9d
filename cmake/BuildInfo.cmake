# The commit that a program was built from.
#
# quench_build_info(target): adds build_info.cpp to `target`, which train/doctor/build_info.h declares. It is written anew at
# every build and left alone where nothing has changed, so that a new commit costs one small file and the links. In script
# mode (-P) this file writes it.

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)  # @commit@ below is for file(CONFIGURE) alone
  set(commit "")
  execute_process(COMMAND git rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE_DIR}
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  # Not the commit of a repository that the sources merely lie in.
  file(REAL_PATH "${SOURCE_DIR}" source)
  if(status STREQUAL "0" AND top STREQUAL source)
    execute_process(COMMAND git describe --always --dirty --abbrev=12 --exclude=* WORKING_DIRECTORY ${SOURCE_DIR}
                    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "// Written by cmake/BuildInfo.cmake.
#include \"train/doctor/build_info.h\"

namespace quench {

const BuildInfo kBuildInfo{\"@VERSION@\", \"@commit@\", \"@COMPILER@\", \"@BUILD_TYPE@\"};

}  // namespace quench
")
  return()
endif()

function(quench_build_info target)
  set(output ${CMAKE_BINARY_DIR}/generated/build_info.cpp)
  add_custom_target(quench_build_info_file BYPRODUCTS ${output}
    COMMAND ${CMAKE_COMMAND} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUTPUT=${output} -DVERSION=${PROJECT_VERSION}
            "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}" -DBUILD_TYPE=${CMAKE_BUILD_TYPE}
            -P ${CMAKE_SOURCE_DIR}/cmake/BuildInfo.cmake
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
  set_source_files_properties(${output} PROPERTIES GENERATED ON)
  add_dependencies(${target} quench_build_info_file)
endfunction()
