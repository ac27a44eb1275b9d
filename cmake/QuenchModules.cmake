# quench_module(name [NOT_FUZZED [folders...]] DEPENDS ...): an object library of name/**/*.cpp, linked whole so that static
# registration objects (kernel slots, back ends) are never dropped. In the build of the fuzz targets, the folders named are
# left out; without any, the whole module is compiled without sanitizers.

function(quench_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;NOT_FUZZED" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${name}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/(core/(cpu|cuda)|distributed/nccl|data/arrow)/|/engine/grammar/xgrammar\\.cpp$")
  if(QUENCH_FUZZ AND ARG_NOT_FUZZED)
    list(JOIN ARG_NOT_FUZZED "|" folders)
    list(FILTER sources EXCLUDE REGEX "/${name}/(${folders})/")
  endif()
  if(NOT sources)
    add_library(quench_${name} INTERFACE)
    target_link_libraries(quench_${name} INTERFACE quench_options ${ARG_DEPENDS})
    return()
  endif()
  add_library(quench_${name}_objects OBJECT ${sources})
  quench_unity(quench_${name}_objects)
  target_link_libraries(quench_${name}_objects PUBLIC quench_options ${ARG_DEPENDS} OpenMP::OpenMP_CXX)
  if(QUENCH_FUZZ AND "NOT_FUZZED" IN_LIST ARG_KEYWORDS_MISSING_VALUES)
    set_target_properties(quench_${name}_objects PROPERTIES QUENCH_NOT_FUZZED ON)
  endif()
  add_library(quench_${name} INTERFACE)
  target_link_libraries(quench_${name} INTERFACE quench_${name}_objects ${ARG_DEPENDS})
  quench_add_objects(${name} quench_${name}_objects)
endfunction()

# Objects of targets, added to a module: linked into the programs, and into the module's libraries (QuenchLibraries.cmake)
# in this order.
function(quench_add_objects module)
  foreach(target IN LISTS ARGN)
    target_link_libraries(quench_${module} INTERFACE $<TARGET_OBJECTS:${target}>)
    set_property(GLOBAL APPEND PROPERTY QUENCH_OBJECTS_${module} $<TARGET_OBJECTS:${target}>)
  endforeach()
endfunction()

# core/cpu/**/*.cpp are compiled once for each level of instructions; kernel slots take the best one at start
# (core/device/kernel_slot.h).
# Files named *_onednn.cpp and *_host.cpp hold no vector loops of their own and are compiled once. GEMMs are oneDNN's on
# x86-64, for which alone it generates code (in Debian), and gemm_tiled.cpp elsewhere. The lowest level comes first on
# the link line so that any inline function both levels emit resolves to code every machine can run.
function(quench_cpu_kernels module)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/cpu/*.cpp)
  if(NOT kernels)
    return()
  endif()
  set(once ${kernels})
  list(FILTER once INCLUDE REGEX "(_onednn|_host)\\.cpp$")
  list(FILTER kernels EXCLUDE REGEX "(_onednn|_host)\\.cpp$")
  if(QUENCH_X86)
    set(onednn DNNL::dnnl)
  else()
    list(FILTER once EXCLUDE REGEX "_onednn\\.cpp$")
  endif()
  set(flags -O3 -fno-math-errno -fno-trapping-math)
  add_library(quench_cpu_once OBJECT ${once})
  quench_unity(quench_cpu_once)
  target_link_libraries(quench_cpu_once PUBLIC quench_options spdlog::spdlog ${onednn} OpenMP::OpenMP_CXX)
  target_link_libraries(quench_${module} INTERFACE ${onednn})
  quench_add_objects(${module} quench_cpu_once)
  if(QUENCH_X86)
    set(levels 3 4 5)
  elseif(QUENCH_AARCH64)
    set(levels 1 2 3)
  else()
    set(levels 0)
  endif()
  if(NOT kernels)
    return()
  endif()
  if(QUENCH_COVERAGE OR QUENCH_SANITIZE)  # GCC 12 reports the same under another name there
    list(APPEND flags $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized>)
  endif()
  # core/device/cpu_level.h names the levels. What writes activations, and products, gain from bf16 and integer products;
  # packed products from the latter alone.
  set(with_bf16 "/(attention[^/]*|cross_entropy|distillation_loss|hidden_loss|token_permutation|norm|packed_[^/]*|rope|swiglu)\\.cpp$")
  set_source_files_properties(${CMAKE_SOURCE_DIR}/core/cpu/packed_linear.cpp PROPERTIES COMPILE_OPTIONS
                              "$<$<STREQUAL:$<TARGET_PROPERTY:NAME>,quench_cpu_v5>:-mavx512vnni>")
  foreach(level IN LISTS levels)
    set(sources ${kernels})
    if(level EQUAL 5 OR (QUENCH_AARCH64 AND level EQUAL 3))
      list(FILTER sources INCLUDE REGEX "${with_bf16}")
    elseif(QUENCH_AARCH64 AND level EQUAL 2)
      list(FILTER sources INCLUDE REGEX "/packed_[^/]*\\.cpp$")
    endif()
    add_library(quench_cpu_v${level} OBJECT ${sources})
    quench_unity(quench_cpu_v${level})
    target_link_libraries(quench_cpu_v${level} PUBLIC quench_options spdlog::spdlog OpenMP::OpenMP_CXX)
    target_compile_options(quench_cpu_v${level} PRIVATE ${flags})
    target_compile_definitions(quench_cpu_v${level} PRIVATE QUENCH_CPU_LEVEL=${level})
    if(QUENCH_AARCH64)
      # GCC notes at every pair of vectors that GCC 10 passed it otherwise. Its first scheduling moves loads ahead until
      # accumulators leave the registers.
      target_compile_options(quench_cpu_v${level} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-psabi;-fno-schedule-insns>")
      if(level EQUAL 2)
        target_compile_options(quench_cpu_v2 PRIVATE -march=armv8.2-a+dotprod)
      elseif(level EQUAL 3)
        target_compile_options(quench_cpu_v3 PRIVATE -march=armv8.2-a+dotprod+bf16+i8mm)
      endif()
    elseif(level EQUAL 3)
      target_compile_options(quench_cpu_v${level} PRIVATE -march=x86-64-v3)
    elseif(level GREATER_EQUAL 4)
      # GCC 12 reports its own AVX-512 headers as reading uninitialised operands (its bug 105593).
      target_compile_options(quench_cpu_v${level} PRIVATE -march=x86-64-v4 -mprefer-vector-width=512
                             $<$<EQUAL:${level},5>:-mavx512bf16>
                             $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    endif()
    quench_add_objects(${module} quench_cpu_v${level})
  endforeach()
endfunction()

# core/cuda/**/*.cpp and *.cu, where the CUDA toolkit was found: the GPU back end. The runtime is linked statically and
# cuBLASLt and cuDNN are loaded when first used, so that the same program runs where there is no CUDA.
function(quench_cuda_backend module)
  if(NOT QUENCH_HAVE_CUDA)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/core/cuda/*.cpp
       ${CMAKE_SOURCE_DIR}/core/cuda/*.cu)
  if(NOT QUENCH_HAVE_CUDNN)
    list(FILTER sources EXCLUDE REGEX "/core/cuda/cudnn/")
  endif()
  # TMA and wgmma: kernels of sm_90a, chosen at run time by the device. The rest is compiled for every
  # architecture of the build.
  set(sm90 ${sources})
  list(FILTER sources EXCLUDE REGEX "/core/cuda/sm90/")
  list(FILTER sm90 INCLUDE REGEX "/core/cuda/sm90/")
  set(sm90_architectures ${CMAKE_CUDA_ARCHITECTURES})
  list(FILTER sm90_architectures INCLUDE REGEX "^90a")
  if(sm90_architectures)
    list(FILTER sm90 EXCLUDE REGEX "/absent\\.cpp$")
  else()
    list(FILTER sm90 INCLUDE REGEX "/absent\\.cpp$")
    set(sm90_architectures ${CMAKE_CUDA_ARCHITECTURES})
  endif()
  add_library(quench_cuda_sm90 OBJECT ${sm90})
  set_target_properties(quench_cuda_sm90 PROPERTIES CUDA_ARCHITECTURES "${sm90_architectures}")
  target_link_libraries(quench_cuda_sm90 PUBLIC quench_options spdlog::spdlog nlohmann_json::nlohmann_json
                        CUDA::cudart_static ${CMAKE_DL_LIBS})
  add_library(quench_cuda OBJECT ${sources})
  if(QUENCH_HAVE_CUDNN)
    target_include_directories(quench_cuda SYSTEM PRIVATE ${CUDNN_FRONTEND_INCLUDE_DIR} ${CUDNN_INCLUDE_DIR})
    target_compile_definitions(quench_cuda PRIVATE QUENCH_HAVE_CUDNN CUDNN_FRONTEND_SKIP_JSON_LIB)
    # The front end's headers take minutes at -O2, and what they do runs once a graph.
    set_source_files_properties(${CMAKE_SOURCE_DIR}/core/cuda/cudnn/attention_graph.cpp PROPERTIES COMPILE_OPTIONS -O1)
  endif()
  target_link_libraries(quench_cuda PUBLIC quench_options spdlog::spdlog nlohmann_json::nlohmann_json
                        CUDA::cudart_static ${CMAKE_DL_LIBS})
  # For the link alone: the toolkit's include folder on every command line would keep builds with and without the GPU
  # part from sharing compiled objects (ccache).
  quench_add_objects(${module} quench_cuda quench_cuda_sm90)
  target_link_libraries(quench_${module} INTERFACE $<LINK_ONLY:CUDA::cudart_static> ${CMAKE_DL_LIBS})
endfunction()

# distributed/nccl/*.cpp, where the CUDA toolkit and nccl.h were found. The library itself is opened when first used.
function(quench_nccl_groups module)
  if(NOT QUENCH_HAVE_NCCL)
    return()
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/distributed/nccl/*.cpp)
  add_library(quench_nccl OBJECT ${sources})
  target_include_directories(quench_nccl SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  target_link_libraries(quench_nccl PUBLIC quench_options spdlog::spdlog nlohmann_json::nlohmann_json
                        CUDA::cudart_static OpenMP::OpenMP_CXX)
  quench_add_objects(${module} quench_nccl)
endfunction()
