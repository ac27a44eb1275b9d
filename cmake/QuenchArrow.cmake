# data/arrow: a module that reads Parquet and Arrow files with Apache Arrow's C++ library, which scripts/setup.sh puts into
# .deps from the pyarrow wheel. The program opens the module when it meets the first such file and has no other tie to
# the library: without it, such files are refused by name.

set(ARROW_PATH ${CMAKE_SOURCE_DIR}/.deps/arrow CACHE PATH "Folder with include and lib of Apache Arrow")
file(GLOB QUENCH_ARROW_LIBRARIES ${ARROW_PATH}/lib/libarrow.so* ${ARROW_PATH}/lib/libparquet.so*)
list(LENGTH QUENCH_ARROW_LIBRARIES count)
if(EXISTS ${ARROW_PATH}/include/parquet/arrow/reader.h AND count GREATER_EQUAL 2)
  set(QUENCH_HAVE_ARROW ON)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/data/arrow/*.cpp)
  add_library(quench_arrow MODULE ${sources})
  target_link_libraries(quench_arrow PRIVATE quench_options ${QUENCH_ARROW_LIBRARIES})
  target_include_directories(quench_arrow SYSTEM PRIVATE ${ARROW_PATH}/include)
  set_target_properties(quench_arrow PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR} CXX_VISIBILITY_PRESET hidden
                        VISIBILITY_INLINES_HIDDEN ON BUILD_RPATH ${ARROW_PATH}/lib
                        INSTALL_RPATH "$ORIGIN:$ORIGIN/../../pyarrow")  # in the wheel: that of the package pyarrow
else()
  message(STATUS "Parquet and Arrow files: OFF, refused by name (scripts/setup.sh installs Apache Arrow)")
endif()
