# The CUDA backend, twice: for GPUs where nvcc is found (ADDER_CUDA), and under the emulator of
# src/backends/cuda/shim for the tests, which needs neither nvcc nor a GPU.
set(ADDER_CUDA AUTO CACHE STRING "Build the CUDA backend: ON, OFF, or AUTO (where nvcc is found)")
set(ADDER_HAVE_CUDA OFF)
if(NOT ADDER_CUDA STREQUAL OFF AND NOT ADDER_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(ADDER_HAVE_CUDA ON)
  elseif(ADDER_CUDA STREQUAL ON)
    message(FATAL_ERROR "ADDER_CUDA is ON, but no nvcc was found: set CUDACXX or PATH")
  endif()
endif()

if(ADDER_HAVE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 90-virtual)
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # the program starts where no CUDA is installed
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # which CMake 3.25 does not know
  find_package(CUDAToolkit REQUIRED)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS src/backends/cuda/*.cc src/backends/cuda/*.cu)
  list(FILTER cuda_sources EXCLUDE REGEX "/cuda/shim/")
  add_library(adder_cuda STATIC ${cuda_sources})
  target_include_directories(adder_cuda PUBLIC src)
  target_link_libraries(adder_cuda PUBLIC adder_core adder_kernels PRIVATE CUDA::cudart_static)
  target_compile_options(adder_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow>)
endif()
