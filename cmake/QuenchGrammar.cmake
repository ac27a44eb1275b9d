# engine/grammar/xgrammar.cpp: answers that keep to a JSON schema or a regular expression, with XGrammar, whose C++ sources
# scripts/setup.sh puts into .deps. Without them, a request for such an answer is refused by name.

option(QUENCH_GRAMMAR "Build what keeps answers to a JSON schema, where XGrammar's sources are" ON)
set(XGRAMMAR_PATH ${CMAKE_SOURCE_DIR}/.deps/xgrammar CACHE PATH "Folder with cpp and include of XGrammar's source distribution")
if(QUENCH_GRAMMAR AND EXISTS ${XGRAMMAR_PATH}/include/xgrammar/xgrammar.h)
  set(QUENCH_HAVE_GRAMMAR ON)
  file(GLOB sources ${XGRAMMAR_PATH}/cpp/*.cc ${XGRAMMAR_PATH}/cpp/support/*.cc ${XGRAMMAR_PATH}/cpp/converter_ext/*.cc)
  add_library(quench_xgrammar OBJECT ${sources})
  target_include_directories(quench_xgrammar SYSTEM PUBLIC ${XGRAMMAR_PATH}/include)
  # Messages come to engine/grammar/xgrammar.cpp.
  target_compile_definitions(quench_xgrammar PRIVATE XGRAMMAR_LOG_CUSTOMIZE=1 XGRAMMAR_ENABLE_CPPTRACE=0
                             XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  target_compile_options(quench_xgrammar PRIVATE -w)
  set_target_properties(quench_xgrammar PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(quench_xgrammar PUBLIC Threads::Threads)
  add_library(quench_grammar OBJECT ${CMAKE_SOURCE_DIR}/engine/grammar/xgrammar.cpp)
  target_include_directories(quench_grammar SYSTEM PRIVATE ${XGRAMMAR_PATH}/cpp) # automata of patterns
  target_link_libraries(quench_grammar PUBLIC quench_options spdlog::spdlog nlohmann_json::nlohmann_json quench_xgrammar)
  quench_add_objects(engine quench_grammar quench_xgrammar)
elseif(QUENCH_GRAMMAR AND QUENCH_TESTS)
  message(FATAL_ERROR "The tests need XGrammar's sources, which are not in ${XGRAMMAR_PATH}: run scripts/setup.sh, or configure "
                      "with -DQUENCH_GRAMMAR=OFF to leave out answers by a JSON schema and their tests")
else()
  message(STATUS "Answers by a JSON schema: OFF, refused by name (scripts/setup.sh installs XGrammar's sources)")
endif()
