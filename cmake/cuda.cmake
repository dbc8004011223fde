# Finds a CUDA compiler, of CUDA 12 or newer, or does without, and says which in one line.
#
# Sets GEOMX_CUDA_FOUND, and then CMAKE_CUDA_ARCHITECTURES (machine code for every generation from
# Volta or the oldest that the toolkit knows up to Hopper; newer ones compile its PTX when they load
# it), GEOMX_CUDA_LOWEST (such a number, 75) and GEOMX_CUDA_BUILD (a sentence for `geomx info`). A given
# CMAKE_CUDA_ARCHITECTURES is kept.
#
# `auto` builds for a GPU where one is: compiling for all generations takes longer than all the rest,
# and a machine without one gains nothing by it. `on` is for packages and for tests of the build, and an
# error without a compiler.

# Ends geomx_find_cuda without a compiler: with an error for `on`.
macro(geomx_without_cuda why remedy)
  if(wanted STREQUAL "on")
    message(FATAL_ERROR "GEOMX_CUDA=on, but ${why}: ${remedy}")
  endif()
  message(STATUS "geomx: no_cuda (${why})")
  return()
endmacro()

function(geomx_find_cuda)
  set(GEOMX_CUDA_FOUND OFF PARENT_SCOPE)
  string(TOLOWER "${GEOMX_CUDA}" wanted)
  if(NOT wanted MATCHES "^(on|off|auto)$")
    message(FATAL_ERROR "GEOMX_CUDA is ${GEOMX_CUDA}: must be on, off or auto")
  endif()
  if(wanted STREQUAL "off")
    message(STATUS "geomx: no_cuda (GEOMX_CUDA=off)")
    return()
  endif()
  if(wanted STREQUAL "auto" AND NOT EXISTS "/dev/nvidiactl")
    message(STATUS "geomx: no_cuda (no GPU on this machine; GEOMX_CUDA=on builds for all)")
    return()
  endif()
  find_program(GEOMX_NVCC nvcc HINTS "$ENV{CUDACXX}" "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin"
                                     /usr/local/cuda/bin)
  if(NOT CMAKE_CUDA_COMPILER AND NOT "$ENV{CUDACXX}" AND GEOMX_NVCC)
    set(CMAKE_CUDA_COMPILER "${GEOMX_NVCC}" CACHE FILEPATH "The CUDA compiler")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    geomx_without_cuda("no CUDA compiler was found" "set CUDACXX to nvcc's path")
  endif()
  execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --version OUTPUT_VARIABLE told ERROR_QUIET)
  if(told MATCHES "release ([0-9]+)" AND CMAKE_MATCH_1 LESS 12)
    set(old "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}, and 12 or newer is needed")
    unset(CMAKE_CUDA_COMPILER CACHE)  # the next attempt looks again
    unset(GEOMX_NVCC CACHE)
    geomx_without_cuda("${old}" "set CUDACXX to another nvcc's path")
  endif()
  set(GEOMX_CUDA_FOUND ON PARENT_SCOPE)
endfunction()

geomx_find_cuda()
if(GEOMX_CUDA_FOUND)
  set(geomx_chosen "${CMAKE_CUDA_ARCHITECTURES}")
  if(NOT geomx_chosen)
    set(CMAKE_CUDA_ARCHITECTURES 80)  # for CMake's own look at the compiler
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit 12 REQUIRED)
  if(NOT geomx_chosen)
    # CUDA 13 has left Volta (sm_70) behind. Code for sm_80 runs on sm_86 and sm_89 as well.
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90)
    if(CUDAToolkit_VERSION VERSION_LESS 13)
      list(PREPEND CMAKE_CUDA_ARCHITECTURES 70-real)
    endif()
  endif()
  set(geomx_numbers "${CMAKE_CUDA_ARCHITECTURES}")
  if(geomx_numbers STREQUAL "native")
    set(geomx_numbers "${CMAKE_CUDA_ARCHITECTURES_NATIVE}")  # set with the language, where a GPU is
  elseif(geomx_numbers MATCHES "^all")
    set(geomx_numbers "${CMAKE_CUDA_ARCHITECTURES_ALL}")
  endif()
  string(REGEX MATCH "[0-9]+" GEOMX_CUDA_LOWEST "${geomx_numbers}")
  if(NOT GEOMX_CUDA_LOWEST)
    message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES=${CMAKE_CUDA_ARCHITECTURES}: CMake found no GPU "
                        "to build for; give numbers, such as 80;90")
  endif()
  list(TRANSFORM geomx_numbers REPLACE "-.*" "")
  list(TRANSFORM geomx_numbers PREPEND "sm_")
  list(JOIN geomx_numbers ", " geomx_numbers)
  set(GEOMX_CUDA_BUILD "CUDA ${CUDAToolkit_VERSION}: ${geomx_numbers} and newer")
  message(STATUS "geomx: ${GEOMX_CUDA_BUILD}")
endif()
