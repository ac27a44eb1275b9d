# Libraries for C++ programs, one a module, static and shared: libquench_core, ..., libquench_train. They are made of the
# objects of the program. Installed with the headers of the public API (quench/*.h), a CMake package and a pkg-config file
# as component `development`.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(modules core autograd nn engine recipes data distributed export train)
set(needs_core "")
set(needs_autograd core)
set(needs_nn autograd)
set(needs_engine nn)
set(needs_recipes nn)
set(needs_data core)
set(needs_distributed recipes)
set(needs_export recipes data)
set(needs_train export distributed engine)
# Names for the linker, of what the module's objects call themselves.
set(links_core fmt spdlog xxhash gomp pthread dl)
if(QUENCH_X86)
  list(PREPEND links_core dnnl)
endif()
set(links_data pcre2-8 sentencepiece utf8proc z zstd curl crypto)
set(links_distributed gloo)
if(QUENCH_HAVE_CUDA)
  list(APPEND links_core CUDA::cudart_static)
endif()

set(externals "")  # of this module and those before it; the linker drops what it does not need
foreach(module IN LISTS modules)
  get_property(objects GLOBAL PROPERTY QUENCH_OBJECTS_${module})
  foreach(kind static shared)
    string(TOUPPER ${kind} KIND)
    set(library quench_${module}_${kind})
    add_library(${library} ${KIND} ${objects})
    set_target_properties(${library} PROPERTIES OUTPUT_NAME quench_${module} LINKER_LANGUAGE CXX INSTALL_RPATH "$ORIGIN"
                          VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  endforeach()
  list(TRANSFORM needs_${module} REPLACE "(.+)" "quench_\\1_shared" OUTPUT_VARIABLE needed)
  get_target_property(external quench_${module} INTERFACE_LINK_LIBRARIES)
  list(FILTER external EXCLUDE REGEX "^(\\$<TARGET_OBJECTS|quench_)")
  list(APPEND externals ${external})
  target_link_libraries(quench_${module}_shared PUBLIC ${needed} PRIVATE ${externals} OpenMP::OpenMP_CXX)
  # A library without its lower modules would load, and fail at the first call.
  target_link_options(quench_${module}_shared PRIVATE -Wl,--no-undefined -Wl,--as-needed)
  install(TARGETS quench_${module}_static quench_${module}_shared COMPONENT development
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()

# Headers that the public ones include, at any depth.
install(CODE "set(SOURCE_DIR \"${CMAKE_SOURCE_DIR}\")
set(DESTINATION \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
include(\"${CMAKE_SOURCE_DIR}/cmake/InstallHeaders.cmake\")" COMPONENT development)

set(QUENCH_MODULES ${modules})
set(QUENCH_DEPENDENCIES "")
foreach(module IN LISTS modules)
  string(APPEND QUENCH_DEPENDENCIES "set(_quench_needs_${module} ${needs_${module}})
set(_quench_links_${module} ${links_${module}})\n")
endforeach()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Quench)
configure_package_config_file(cmake/QuenchConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/QuenchConfig.cmake
                              INSTALL_DESTINATION ${package_folder}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/QuenchConfigVersion.cmake
                                 VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/quench.pc.in ${CMAKE_BINARY_DIR}/generated/quench.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/QuenchConfig.cmake ${CMAKE_BINARY_DIR}/generated/QuenchConfigVersion.cmake
        DESTINATION ${package_folder} COMPONENT development)
install(FILES ${CMAKE_BINARY_DIR}/generated/quench.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
