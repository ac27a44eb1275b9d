# ctest's list of this build: every label of the contract that has tests on any machine finds some, and no name holds an
# address. Run as: cmake -DBUILD_DIR=... -P check_labels.cmake
foreach(label cpu golden slow fuzz)
  execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${BUILD_DIR} -N -L "^${label}$" OUTPUT_VARIABLE list
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "Total Tests: ([0-9]+)" total "${list}")
  if(NOT total OR CMAKE_MATCH_1 EQUAL 0)
    message(SEND_ERROR "no test has the label ${label}")
  endif()
endforeach()
execute_process(COMMAND ${CMAKE_CTEST_COMMAND} --test-dir ${BUILD_DIR} -N OUTPUT_VARIABLE list
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]*0x[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]+[^\n]*" addresses "${list}")
if(addresses)
  list(LENGTH addresses count)
  list(GET addresses 0 first)
  message(SEND_ERROR "${count} test names hold an address, the first is: ${first}")
endif()
