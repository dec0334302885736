# Flags shared by every target of the project.
add_library(adder_flags INTERFACE)
target_compile_options(adder_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                       -Woverloaded-virtual -Wno-missing-field-initializers)
# Contracting a*b+c into an fma is left to the kernels that ask for it: plain code gives the
# same bits whichever compiler built it.
target_compile_options(adder_flags INTERFACE -ffp-contract=off -fno-math-errno)
if(ADDER_WERROR)
  target_compile_options(adder_flags INTERFACE -Werror)
endif()
if(ADDER_SANITIZE)
  target_compile_options(adder_flags INTERFACE -fsanitize=${ADDER_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(adder_flags INTERFACE -fsanitize=${ADDER_SANITIZE})
endif()

# adder_library(<folder> DEPS <public targets> PRIVATE <private targets>)
# makes adder_<folder> from every .cc and .S below src/<folder>.
function(adder_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "src/backends/cuda/")  # cmake/Cuda.cmake has those
  add_library(adder_${name} STATIC ${sources})
  target_include_directories(adder_${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(adder_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE} adder_flags)
  # libFuzzer is blind in code that is not instrumented; kernels would only get slower by it.
  if(ADDER_BUILD_FUZZ AND name MATCHES "^(io|text|server)$")
    target_compile_options(adder_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()
