# The C++ tests, twice: with the library as users get it, and with one that the address and
# undefined-behaviour sanitizers watch. The tests themselves are compiled once, for both; the GPU's
# code as plain C++ (emulated/) is watched like the library.
#
# Compiling takes most of the time, so headers are precompiled, and unity batches are large: two of
# equal size for two cores.
enable_testing()
file(GLOB test_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_test.cc)
add_library(geomx_test_cases OBJECT tests/check_main.cc tests/wire.cc tests/cluster.cc
                                    tests/carriers.cc tests/layout.cc
                                    ${test_sources} ${plugin_tests})
target_include_directories(geomx_test_cases PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_options(geomx_test_cases PRIVATE -O1)  # with -O0, running them takes what compiling saves
target_precompile_headers(geomx_test_cases PRIVATE tests/precompiled.h)
set_target_properties(geomx_test_cases PROPERTIES UNITY_BUILD_BATCH_SIZE 22)
set(emulated geomx_emulated)
if(NOT GEOMX_SANITIZE_THREADS)
  list(APPEND emulated geomx_emulated_sanitized)
endif()
add_subdirectory(tests/emulated)

# The core under drawn faults (faults/main.cc).
file(GLOB fault_sources CONFIGURE_DEPENDS faults/*.cc)
add_library(geomx_fault_cases OBJECT ${fault_sources} tests/wire.cc tests/cluster.cc tests/carriers.cc
                                     tests/layout.cc)
target_include_directories(geomx_fault_cases PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_compile_options(geomx_fault_cases PRIVATE -O1)
set_target_properties(geomx_fault_cases PROPERTIES UNITY_BUILD_BATCH_SIZE 40)

function(add_tests suffix)
  # The library first: of an inline function that both have, the linker takes the first.
  add_executable(geomx_tests${suffix} $<TARGET_OBJECTS:geomx_native${suffix}>
                                      $<TARGET_OBJECTS:geomx_emulated${suffix}>
                                      $<TARGET_OBJECTS:geomx_test_cases>)
  target_link_libraries(geomx_tests${suffix} PRIVATE geomx_native${suffix})
  add_test(NAME geomx_tests${suffix} COMMAND geomx_tests${suffix})
  add_executable(geomx_faults${suffix} $<TARGET_OBJECTS:geomx_native${suffix}>
                                       $<TARGET_OBJECTS:geomx_fault_cases>)
  target_link_libraries(geomx_faults${suffix} PRIVATE geomx_native${suffix})
endfunction()

add_tests("")

add_executable(device_live ${PROJECT_SOURCE_DIR}/benchmarks/gpu/live.cc)
target_compile_options(device_live PRIVATE -O0)
target_link_libraries(device_live PRIVATE geomx_native)

# ---- under the sanitizers ----

if(GEOMX_SANITIZE_THREADS)  # no other goes with that one, which watches all that is above
  return()
endif()
set(watch -fsanitize=address,undefined)
set(watched ${watch} -fno-sanitize-recover=all -g1 -O0)  # unoptimised: compiling is what takes time

add_runtime(_sanitized)
target_sources(geomx_kernels_sanitized PRIVATE kernels/cuda/absent.cc)
add_tests(_sanitized)
foreach(fuzzer fuzz_wire fuzz_journal)
  add_executable(${fuzzer}_main tests/${fuzzer}.cc)
  target_compile_definitions(${fuzzer}_main PRIVATE GEOMX_FUZZ_MAIN)
  target_link_libraries(${fuzzer}_main PRIVATE geomx_native_sanitized)
endforeach()
set(fuzzers fuzz_wire_main fuzz_journal_main)
foreach(target geomx_kernels_sanitized geomx_native_sanitized geomx_emulated_sanitized ${fuzzers})
  target_compile_options(${target} PRIVATE ${watched})
endforeach()
# Plugins' sources are compiled one by one.
target_precompile_headers(geomx_native_sanitized PRIVATE <algorithm> <cmath> <map> core/natives.h)
# One file, which takes 2.2 GB: in two, a seventh of the work would be done twice.
set_target_properties(geomx_native_sanitized PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
foreach(program geomx_tests_sanitized geomx_faults_sanitized ${fuzzers})
  target_link_options(${program} PRIVATE ${watch})
endforeach()
