# The CUDA backend, twice: for GPUs (ADDER_CUDA), and under the emulator of src/backends/cuda/shim for the
# tests, which needs neither nvcc nor a GPU.
set(ADDER_CUDA AUTO CACHE STRING "Build the CUDA backend: ON; OFF; IF_NVCC, where nvcc is found; AUTO, \
where there is nvcc and a driver. It takes nvcc some minutes.")
set(ADDER_HAVE_CUDA OFF)
if(ADDER_CUDA MATCHES "^(ON|IF_NVCC)$" OR (ADDER_CUDA STREQUAL AUTO AND EXISTS /proc/driver/nvidia))
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
    set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)  # and PTX of sm_80 for what comes later
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)  # the program starts where no CUDA is installed
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # which CMake 3.25 does not know
  find_package(CUDAToolkit REQUIRED)
  if(ADDER_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${ADDER_CCACHE})
  endif()
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS src/backends/cuda/*.cc src/backends/cuda/*.cu)
  list(FILTER cuda_sources EXCLUDE REGEX "/cuda/shim/")
  add_library(adder_cuda STATIC ${cuda_sources})
  set_target_properties(adder_cuda PROPERTIES UNITY_BUILD OFF)
  target_include_directories(adder_cuda PUBLIC src)
  target_link_libraries(adder_cuda PUBLIC adder_core adder_kernels PRIVATE CUDA::cudart_static)
  target_compile_options(adder_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow>)
endif()
