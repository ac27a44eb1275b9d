# GPU architectures of the CUDA back end: sm_90a, those of CMAKE_CUDA_ARCHITECTURES, or with QUENCH_CUDA_FAT every one
# since Ampere that the toolkit knows.
#
# No kernel uses instructions of a Blackwell family, so code for 10.0 also serves 10.3, and code for 12.0 also 12.1. 8.6 runs
# the code for 8.0, as a wheel shall have at most 60 MiB; 8.9 has float8 instructions. The PTX of the newest general target
# is compiled by the driver of GPUs that come later.
function(quench_cuda_architectures out)
  if(QUENCH_CUDA_FAT)
    set(architectures 80-real 89-real 90a-real)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND architectures 100-real 120-real 120-virtual)
    else()
      list(APPEND architectures 90-virtual)
    endif()
  elseif(DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  else()
    set(architectures 90a-real)
  endif()
  set(${out} "${architectures}" PARENT_SCOPE)
endfunction()
