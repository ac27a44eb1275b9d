# What `cmake --install` puts where, and the Debian packages that CPack makes of it (scripts/package.sh): quench of component
# `runtime`, libquench-dev of component `development` (QuenchLibraries.cmake). The program needs no other file: its configs
# are inside it.

include(GNUInstallDirs)

install(TARGETS quench RUNTIME COMPONENT runtime)
# The module for Parquet and Arrow files and the libraries that it needs, which no Debian package has.
if(TARGET quench_arrow)
  install(TARGETS quench_arrow LIBRARY DESTINATION lib/quench COMPONENT runtime)
  install(FILES ${QUENCH_ARROW_LIBRARIES} DESTINATION lib/quench COMPONENT runtime)
  install(FILES ${ARROW_PATH}/LICENSE.txt ${ARROW_PATH}/NOTICE.txt DESTINATION ${CMAKE_INSTALL_DOCDIR}/arrow
          COMPONENT runtime OPTIONAL)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${ARROW_PATH}/lib)
endif()
install(FILES README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime FILES_MATCHING PATTERN "*.md"
        PATTERN "*.sbatch" PATTERN "*.yaml" PATTERN "Containerfile")
# The pages link to them and name them.
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
install(PROGRAMS scripts/wandb_mirror.py DESTINATION ${CMAKE_INSTALL_DOCDIR}/scripts COMPONENT runtime)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright COMPONENT runtime)
if(QUENCH_LIBRARIES)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/libquench-dev RENAME copyright COMPONENT development)
endif()
# Licences of header-only code within the program, whose notices a binary has to carry.
foreach(headers nlohmann-json3-dev libcli11-dev libfmt-dev libspdlog-dev)
  install(FILES /usr/share/doc/${headers}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences RENAME ${headers}
          COMPONENT runtime OPTIONAL)
endforeach()
if(QUENCH_HAVE_GRAMMAR)
  install(FILES ${XGRAMMAR_PATH}/LICENSE ${XGRAMMAR_PATH}/NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences/xgrammar
          COMPONENT runtime)
endif()
if(QUENCH_HAVE_CUDA)
  file(GLOB cudnn_frontend_licence ${CMAKE_SOURCE_DIR}/.deps/nvidia_cudnn_frontend-*.dist-info/licenses/LICENSE*)
  if(cudnn_frontend_licence)
    list(GET cudnn_frontend_licence 0 cudnn_frontend_licence)
    install(FILES ${cudnn_frontend_licence} DESTINATION ${CMAKE_INSTALL_DOCDIR}/licences RENAME cudnn-frontend
            COMPONENT runtime)
  endif()
endif()

# The program prints the completion scripts itself. Debian's zsh looks into vendor-completions for its packages, every
# other one into site-functions.
function(quench_install_completion shell folder name)
  set(emulator "")
  if(CMAKE_CROSSCOMPILING)
    list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
  endif()
  install(CODE "set(folder ${CMAKE_INSTALL_DATADIR}/${folder})
if(\"${shell}\" STREQUAL zsh AND CMAKE_INSTALL_PREFIX STREQUAL /usr)
  set(folder ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
endif()
execute_process(COMMAND ${emulator} \"$<TARGET_FILE:quench>\" completion ${shell} OUTPUT_VARIABLE script COMMAND_ERROR_IS_FATAL ANY)
set(file \"\${CMAKE_INSTALL_PREFIX}/\${folder}/${name}\")
message(STATUS \"Installing: \$ENV{DESTDIR}\${file}\")
file(WRITE \"\$ENV{DESTDIR}\${file}\" \"\${script}\")
list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${file}\")" COMPONENT runtime)
endfunction()
quench_install_completion(bash bash-completion/completions quench)
quench_install_completion(zsh zsh/site-functions _quench)
quench_install_completion(fish fish/vendor_completions.d quench.fish)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quench)
set(CPACK_PACKAGE_VENDOR "the Quench authors")
set(CPACK_PACKAGE_CONTACT "Quench authors <authors@quench.invalid>")
# First line: synopsis. CPACK_PACKAGE_DESCRIPTION_SUMMARY would be that of both packages.
set(CPACK_PACKAGE_DESCRIPTION
    "trains and fine-tunes Llama-family language models
Quench pre-trains and fine-tunes Llama-family language models without Python. One
program tokenizes text, trains on CPUs and NVIDIA GPUs with float8, FSDP, LoRA
and QAT, writes crash-safe checkpoints, evaluates, generates, and exports models
for Transformers, vLLM and llama.cpp.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # needs dpkg-dev
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL runtime)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME quench)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
if(QUENCH_LIBRARIES)
  list(APPEND CPACK_COMPONENTS_ALL development)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libquench-dev)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
  # Headers of the public API include fmt's; the static libraries are linked to the others.
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfmt-dev, libspdlog-dev, libxxhash-dev, libpcre2-dev, \
libsentencepiece-dev, libutf8proc-dev, zlib1g-dev, libzstd-dev, libcurl4-openssl-dev, libssl-dev, libgloo-dev")
  if(QUENCH_X86)
    string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libdnnl-dev")
  endif()
  set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
      "C++ libraries that train and run Llama-family language models
Headers, static and shared libraries, and a CMake package of Quench, for C++20
programs that train and run Llama-family language models.")
endif()
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  foreach(folder usr/lib usr/lib/aarch64-linux-gnu lib/aarch64-linux-gnu)
    list(APPEND CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_SYSROOT}/${folder})
  endforeach()
endif()
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_THREADS 0)  # all
include(CPack)
