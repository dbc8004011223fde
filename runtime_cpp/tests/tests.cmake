# The C++ tests, twice: with the library as users get it, and with one that the address and
# undefined-behaviour sanitizers watch. The tests themselves are compiled once, for both; the GPU's
# code as plain C++ (emulated/) is watched like the library.
#
# Compiling takes most of the time, so headers are precompiled, unity batches are large, and only what
# runs long is optimised. With -O1, compiling takes three times as long; with -O0, the tests in files
# with this line, and the network in memory under all tests, lose more time than that saves.
set(runs_long "^// Runs long, so it is optimised.$")
enable_testing()
file(GLOB test_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.cc)
foreach(source ${test_sources} ${plugin_tests})
  file(STRINGS ${source} marked REGEX ${runs_long})
  if(marked)
    list(APPEND long_tests ${source})
  else()
    list(APPEND short_tests ${source})
  endif()
endforeach()
function(add_cases name level)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${level})
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
endfunction()
add_cases(geomx_test_network -O1 tests/wire.cc tests/cluster.cc tests/carriers.cc tests/layout.cc)
add_cases(geomx_long_cases -O1 ${long_tests})
add_cases(geomx_short_cases -O0 tests/check_main.cc ${short_tests})
set_target_properties(geomx_short_cases PROPERTIES UNITY_BUILD_BATCH_SIZE 22)  # two, for two cores
target_precompile_headers(geomx_test_network PRIVATE tests/precompiled.h)
target_precompile_headers(geomx_long_cases REUSE_FROM geomx_test_network)
target_precompile_headers(geomx_short_cases PRIVATE tests/precompiled.h)
set(emulated geomx_emulated)
if(NOT GEOMX_SANITIZE_THREADS)
  list(APPEND emulated geomx_emulated_sanitized)
endif()
add_subdirectory(tests/emulated)

# The core under drawn faults (faults/main.cc).
file(GLOB fault_sources CONFIGURE_DEPENDS faults/*.cc)
add_cases(geomx_fault_cases -O1 ${fault_sources})

function(add_tests suffix)
  # The library first: of an inline function that both have, the linker takes the first.
  add_executable(geomx_tests${suffix} $<TARGET_OBJECTS:geomx_native${suffix}>
                                      $<TARGET_OBJECTS:geomx_emulated${suffix}>
                                      $<TARGET_OBJECTS:geomx_test_network>
                                      $<TARGET_OBJECTS:geomx_long_cases>
                                      $<TARGET_OBJECTS:geomx_short_cases>)
  target_link_libraries(geomx_tests${suffix} PRIVATE geomx_native${suffix})
  add_test(NAME geomx_tests${suffix} COMMAND geomx_tests${suffix})
  add_executable(geomx_faults${suffix} $<TARGET_OBJECTS:geomx_native${suffix}>
                                       $<TARGET_OBJECTS:geomx_test_network>
                                       $<TARGET_OBJECTS:geomx_fault_cases>)
  target_link_libraries(geomx_faults${suffix} PRIVATE geomx_native${suffix})
endfunction()

add_tests("")

add_cases(geomx_device_live -O0 ${PROJECT_SOURCE_DIR}/benchmarks/gpu/live.cc)
target_precompile_headers(geomx_device_live REUSE_FROM geomx_short_cases)
add_executable(device_live $<TARGET_OBJECTS:geomx_device_live>)
target_link_libraries(device_live PRIVATE geomx_native)

# ---- under the sanitizers ----

if(GEOMX_SANITIZE_THREADS)  # no other goes with that one, which watches all that is above
  return()
endif()
set(watch -fsanitize=address,undefined)
# Unoptimised and without line numbers: compiling is what takes time. (-O1 takes 75 s longer, and the
# tests 25 s less.) Names of functions are in all reports.
option(GEOMX_SANITIZE_LINES "Show line numbers in the stacks of the sanitizers' reports" OFF)
set(watched ${watch} -fno-sanitize-recover=all -O0 $<IF:$<BOOL:${GEOMX_SANITIZE_LINES}>,-g1,-g0>)

add_runtime(_sanitized)
target_sources(geomx_kernels_sanitized PRIVATE kernels/cuda/absent.cc)
add_tests(_sanitized)
foreach(target geomx_kernels_sanitized geomx_native_sanitized geomx_emulated_sanitized)
  target_compile_options(${target} PRIVATE ${watched})
endforeach()
# Plugins' sources are compiled one by one.
target_precompile_headers(geomx_native_sanitized PRIVATE <algorithm> <cmath> <map> core/natives.h)
# One file, which takes 2.2 GB: in two, a seventh of the work would be done twice.
set_target_properties(geomx_native_sanitized PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
foreach(fuzzer fuzz_wire fuzz_journal)
  add_cases(geomx_${fuzzer} "${watched}" tests/${fuzzer}.cc)
  target_compile_definitions(geomx_${fuzzer} PRIVATE GEOMX_FUZZ_MAIN)
  target_precompile_headers(geomx_${fuzzer} REUSE_FROM geomx_native_sanitized)
  add_executable(${fuzzer}_main $<TARGET_OBJECTS:geomx_${fuzzer}>)
  target_link_libraries(${fuzzer}_main PRIVATE geomx_native_sanitized)
endforeach()
foreach(program geomx_tests_sanitized geomx_faults_sanitized fuzz_wire_main fuzz_journal_main)
  target_link_options(${program} PRIVATE ${watch})
endforeach()
